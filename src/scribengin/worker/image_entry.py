"""The entrypoint of the image. Spark starts its executors in Kubernetes as `executor`, and describes them by environment variables: this
program becomes such an executor. All other words are those of the command `scribengin`.

It does what `entrypoint.sh` of Spark's own image does for `executor`, over the Spark of this Python.
"""

from __future__ import annotations

import os
import re
import sys
from typing import TYPE_CHECKING

from scribengin.core.errors import EnvironmentFault, ScribenginError
from scribengin.core.java import find_java, spark_home

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

EXECUTOR = "executor"
_BACKEND = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
_OPTION = re.compile(r"SPARK_JAVA_OPT_(\d+)")
_ARGUMENTS = {
    "--driver-url": "SPARK_DRIVER_URL",
    "--executor-id": "SPARK_EXECUTOR_ID",
    "--cores": "SPARK_EXECUTOR_CORES",
    "--app-id": "SPARK_APPLICATION_ID",
    "--hostname": "SPARK_EXECUTOR_POD_IP",
    "--resourceProfileId": "SPARK_RESOURCE_PROFILE_ID",
    "--podName": "SPARK_EXECUTOR_POD_NAME",
}
_MEMORY = "SPARK_EXECUTOR_MEMORY"


def executor_command(environment: Mapping[str, str], java: Path, spark: Path) -> list[str]:
    """The command line of an executor.

    Args:
        environment: the variables that Spark has set for the container.
        java: the Java program.
        spark: the folder of Spark, with its jars.

    Raises:
        EnvironmentFault: a variable is missing.
    """
    missing = [name for name in (*_ARGUMENTS.values(), _MEMORY) if not environment.get(name)]
    if missing:
        raise EnvironmentFault(
            f"this container cannot be an executor of Spark: {', '.join(missing)} not set",
            remedy=f"only Spark starts a container as `{EXECUTOR}`; to run a command of Scribengin: docker run scribengin --help",
        )
    numbered = sorted((int(found[1]), value) for name, value in environment.items() if (found := _OPTION.fullmatch(name)))
    memory = environment[_MEMORY]
    arguments = [word for option, name in _ARGUMENTS.items() for word in (option, environment[name])]
    options = [value for _, value in numbered]
    return [str(java), *options, f"-Xms{memory}", f"-Xmx{memory}", "-cp", _class_path(environment, spark), _BACKEND, *arguments]


def _class_path(environment: Mapping[str, str], spark: Path) -> str:
    """The folders of settings come first. An empty entry would be the current folder, so none is left."""
    entries = (
        environment.get("SPARK_CONF_DIR", str(spark / "conf")),
        environment.get("HADOOP_CONF_DIR"),
        environment.get("SPARK_CLASSPATH"),
        str(spark / "jars" / "*"),
        environment.get("SPARK_EXTRA_CLASSPATH"),
        environment.get("SPARK_DIST_CLASSPATH"),
    )
    return os.pathsep.join(entry for entry in entries if entry)


def main(words: Sequence[str]) -> None:
    """Become an executor, or the command `scribengin`. Returns only if that fails."""
    if list(words[:1]) == [EXECUTOR]:
        command = executor_command(os.environ, find_java().home / "bin" / "java", spark_home())
    else:
        command = [sys.executable, "-m", "scribengin.cli", *words]
    os.execv(command[0], command)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except ScribenginError as error:
        print(f"{error.message} [{error.code}]\n  {error.remedy}", file=sys.stderr)
        sys.exit(int(error.exit))
