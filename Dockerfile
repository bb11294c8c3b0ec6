# Scribengin with all that runs flows and manages them, Java, and the clients of Kafka, buckets, HDFS and Kubernetes: docker build -t scribengin .
# In Kubernetes it is the image of masters and nodes, of workers, and of Spark's executors (docs/kubernetes.md).
FROM python:3.13-slim AS build
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY src src
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM python:3.13-slim
# the first process ends the children of processes that were killed. Its version is that of the base image's Debian
# hadolint ignore=DL3008
RUN apt-get update && apt-get install -y --no-install-recommends tini && rm -rf /var/lib/apt/lists/*
COPY requirements.lock requirements-jre.lock /locks/
RUN pip install --no-cache-dir --require-hashes -r /locks/requirements.lock -r /locks/requirements-jre.lock
COPY --from=build /wheels /wheels
RUN pip install --no-cache-dir "$(echo /wheels/*.whl)[all,jre,kafka,objects,hdfs,kubernetes]" \
    && useradd --create-home --uid 1000 scribengin \
    && install -d -o scribengin -g scribengin /home/scribengin/master /home/scribengin/node /state
USER 1000
WORKDIR /home/scribengin
# what starts the Java of the package is made here, so that a container may have a file system that is read-only
RUN python -m scribengin.core.java
ENTRYPOINT ["/usr/bin/tini", "-s", "--", "python", "-m", "scribengin.worker.image_entry"]
CMD ["--help"]
