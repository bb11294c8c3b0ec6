"""The entrypoint of Spark's own image, as a kubelet of this machine runs it: with the Java and the PySpark of this Python."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scribengin.core.java import find_java, spark_home
from scribengin.worker.image_entry import EXECUTOR, executor_command

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


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
    if args[:1] == [EXECUTOR]:
        return executor_command(environment, find_java().home / "bin" / "java", spark_home())
    return list(args)
