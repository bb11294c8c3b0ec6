"""Runs ZooKeeper's own shell (`org.apache.zookeeper.ZooKeeperMain`, from the jars of PySpark), for tests of manual changes."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

from scribengin.core.java import find_java
from scribengin.embedded.jars import pyspark_jars
from scribengin.embedded.server import LOGGING_JARS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scribengin.registry.access import DigestLogin, RegistryAddress

_JARS = ("zookeeper-*.jar", "metrics-core-*.jar", "snappy-java-*.jar", "netty-*.jar", "commons-cli-*.jar", "commons-io-*.jar")
_WITHIN_S = 180.0


def run_shell(address: RegistryAddress, commands: Sequence[str] = (), *, login: DigestLogin | None = None, word: Sequence[str] = ()) -> str:
    """Run the shell with a sequence of commands, with a login, or with the single command `word`, without login; returns its output."""
    classpath = ":".join(str(path) for path in pyspark_jars(*_JARS, *LOGGING_JARS))
    java = [str(find_java().home / "bin" / "java"), "-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", classpath]
    first = [] if login is None else [f"addauth digest {login.secret.reveal()}"]
    ended = subprocess.run(
        [*java, "org.apache.zookeeper.ZooKeeperMain", "-server", address.servers[0], *word],
        input="\n".join([*first, *commands, "quit", ""]) if commands else "",
        capture_output=True,
        text=True,
        check=False,
        timeout=_WITHIN_S,
    )
    return ended.stdout + ended.stderr
