"""Kafka's own console tools, as children."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

from scribengin.core.java import find_java
from scribengin.embedded.jars import fetch

if TYPE_CHECKING:
    from scribengin.embedded.kafka import KafkaCluster


def run_tool(cluster: KafkaCluster, tool: str, *arguments: str, given: str = "") -> str:
    """What `org.apache.kafka.tools.<tool>` prints."""
    classpath = ":".join(str(path) for path in fetch("kafka-broker"))
    command = [find_java().home / "bin" / "java", "-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", classpath]
    command += [f"org.apache.kafka.tools.{tool}", "--bootstrap-server", cluster.bootstrap, *arguments]
    ended = subprocess.run(command, input=given, capture_output=True, text=True, check=False, timeout=180)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def write_lines(cluster: KafkaCluster, topic: str, lines: list[str]) -> None:
    """One record a line, acknowledged by all copies; makes the topic where there is none."""
    run_tool(cluster, "ConsoleProducer", "--topic", topic, "--command-property", "acks=all", given="".join(f"{line}\n" for line in lines))


def read_lines(cluster: KafkaCluster, topic: str, count: int) -> list[str]:
    """The first records of a topic, from its beginning."""
    options = ("--topic", topic, "--from-beginning", "--max-messages", str(count), "--timeout-ms", "60000")
    return run_tool(cluster, "consumer.ConsoleConsumer", *options).splitlines()
