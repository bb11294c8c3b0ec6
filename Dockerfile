# Scribengin with all that runs flows and manages them, Java and the Kafka client: docker build -t scribengin .
FROM python:3.13-slim AS build
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY src src
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM python:3.13-slim
COPY requirements.lock requirements-jre.lock /locks/
RUN pip install --no-cache-dir --require-hashes -r /locks/requirements.lock -r /locks/requirements-jre.lock
COPY --from=build /wheels /wheels
RUN pip install --no-cache-dir "$(echo /wheels/*.whl)[all,jre,kafka]" \
    && useradd --create-home --uid 1000 scribengin \
    && install -d -o scribengin -g scribengin /home/scribengin/master /home/scribengin/node /state
USER 1000
WORKDIR /home/scribengin
ENTRYPOINT ["scribengin"]
CMD ["--help"]
