"""The entrypoint of Spark's own image, as a kubelet of this machine runs it: with the Java and the PySpark of this Python."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from scribengin.core.java import find_java, spark_home

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_OPTION = re.compile(r"SPARK_JAVA_OPT_(\d+)")
_EXECUTOR = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"


def spark_entrypoint(args: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """The command line that Spark's `entrypoint.sh` (4.2) runs.

    Args:
        args: the arguments of the container: `driver …`, `executor …`, or any command.
        environment: the environment variables of the container.

    Returns:
        The command line. Spark ignores what follows `executor`, except variables; so does this.
    """
    if args[:1] == ["driver"]:
        bind = f"spark.driver.bindAddress={environment.get('SPARK_DRIVER_BIND_ADDRESS', '')}"
        return [str(spark_home() / "bin" / "spark-submit"), "--conf", bind, "--deploy-mode", "client", *args[1:]]
    if args[:1] == ["executor"]:
        return _executor(environment)
    return list(args)


def _executor(environment: Mapping[str, str]) -> list[str]:
    options = sorted((int(found[1]), value) for name, value in environment.items() if (found := _OPTION.fullmatch(name)))
    memory = environment["SPARK_EXECUTOR_MEMORY"]
    return [
        str(find_java().home / "bin" / "java"),
        *(value for _, value in options),
        f"-Xms{memory}",
        f"-Xmx{memory}",
        "-cp",
        _classpath(environment),
        _EXECUTOR,
        *("--driver-url", environment["SPARK_DRIVER_URL"]),
        *("--executor-id", environment["SPARK_EXECUTOR_ID"]),
        *("--cores", environment["SPARK_EXECUTOR_CORES"]),
        *("--app-id", environment["SPARK_APPLICATION_ID"]),
        *("--hostname", environment["SPARK_EXECUTOR_POD_IP"]),
        *("--resourceProfileId", environment["SPARK_RESOURCE_PROFILE_ID"]),
        *("--podName", environment["SPARK_EXECUTOR_POD_NAME"]),
    ]


def _classpath(environment: Mapping[str, str]) -> str:
    """The order of the script: the configuration, the given classpath, Spark's jars, the extra classpath, the working directory."""
    places = [
        environment.get("SPARK_CONF_DIR") or str(spark_home() / "conf"),
        environment.get("HADOOP_CONF_DIR", ""),
        environment.get("SPARK_CLASSPATH", ""),
        str(spark_home() / "jars" / "*"),
        environment.get("SPARK_EXTRA_CLASSPATH", ""),
        ".",
        environment.get("SPARK_DIST_CLASSPATH", ""),
    ]
    return os.pathsep.join(place for place in places if place)
