"""A connector whose client library is not installed says which extra to install, at its first use, as source and as sink."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pytest

from scribengin.core.errors import Exit


@dataclass(frozen=True)
class Extra:
    """`options`: of its source and its sink alike; `source` and `sink` also have these, and are None where it has none."""

    name: str
    package: str
    module: str
    type: str
    options: dict[str, Any]
    source: dict[str, Any] | None = field(default_factory=dict)
    sink: dict[str, Any] | None = field(default_factory=dict)
    instead: str = ""

    @property
    def remedy(self) -> str:
        return f"install it: pip install 'scribengin[{self.name}]'{self.instead}"


THRIFT = {"server": ["thrift://127.0.0.1:9"], "table": "kept"}
HDFS = {"url": "hdfs://127.0.0.1:9/kept", "format": "json"}
S3 = {
    "url": "s3://bucket/kept",
    "format": "json",
    "config": {"endpoint": "http://127.0.0.1:9", "access_key_id": "a", "secret_access_key": "b"},
}
EXTRAS = [
    Extra("postgres", "psycopg", "psycopg", "postgres", {"server": "postgresql://127.0.0.1:9/shop", "table": "kept"}),
    Extra("cassandra", "cassandra-driver", "cassandra", "cassandra", {"server": ["127.0.0.1:9"], "keyspace": "shop", "table": "kept"}),
    Extra("hbase-thrift", "thriftpy2", "thriftpy2", "hbase", THRIFT, instead="; or name a REST server"),
    Extra("delta", "deltalake", "deltalake", "delta", {"path": "kept"}, source=None),
    Extra("objects", "obstore", "obstore", "objects", S3),
    Extra("hdfs", "hdfs-native", "hdfs_native", "hdfs", HDFS),
    Extra(
        "kafka",
        "confluent-kafka",
        "confluent_kafka",
        "kafka",
        {"bootstrap": "127.0.0.1:9", "format": "json"},
        {"topics": ["kept"]},
        {"topic": "kept"},
    ),
]
PROGRAM = """
import json, sys
from pathlib import Path

folder, cases = Path(sys.argv[1]), json.loads(sys.argv[2])
for case in cases:
    sys.modules[case["module"]] = None  # importing it raises
from scribengin.connectors.catalog import open_sink, open_source, sink_types, source_types
from scribengin.connectors.contract import ConnectorContext
from scribengin.core.errors import ScribenginError
from scribengin.core.types import parse_schema

schema = parse_schema("id BIGINT NOT NULL")
told = []
for case in cases:
    for role in ("source", "sink"):
        given, types = case[role], source_types() if role == "source" else sink_types()
        if given is None:
            continue
        try:
            options = types[case["type"]].filled(case["options"] | given)
            place = ConnectorContext(role, folder, options, schema=schema, flow="flow", work=folder / role)
            if role == "sink":
                open_sink(case["type"], place).prepare(owner="me", lineage="one")
            else:
                source = open_source(case["type"], place)
                source.resolve_schema()
                source.reader().split(None)
            told.append([case["name"], role, "", "nothing", "", 0])
        except ScribenginError as error:
            told.append([case["name"], role, error.code, str(error), error.remedy, error.exit])
print(json.dumps(told))
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], list[Any]]:
    """(extra, role) → code, message, remedy, exit status: in a process that has imported none of these before."""
    command = [sys.executable, "-c", PROGRAM, str(tmp_path_factory.mktemp("extras")), json.dumps([asdict(extra) for extra in EXTRAS])]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return {(name, role): rest for name, role, *rest in json.loads(done.stdout)}


@pytest.mark.parametrize(
    ("extra", "role"),
    [
        pytest.param(extra, role, id=f"{extra.name}-{role}")
        for extra in EXTRAS
        for role in ("source", "sink")
        if getattr(extra, role) is not None
    ],
)
def test_without_its_client_a_connector_says_what_to_install(told: dict[tuple[str, str], list[Any]], extra: Extra, role: str) -> None:
    code, message, remedy, exit_status = told[extra.name, role]
    assert f"needs the package {extra.package}" in message
    assert (code, remedy, exit_status) == (f"{extra.type}-client", extra.remedy, Exit.ENVIRONMENT)


def test_each_extra_that_a_connector_needs_is_tried_here() -> None:
    """`schema-registry`, `avro`, `encryption`, `kubernetes`, `sasl`, `jre` and those of agents are no connectors'; other tests ask for
    their remedies."""
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    assert set(project["project"]["optional-dependencies"]) == {extra.name for extra in EXTRAS} | {
        "spark",
        "server",
        "all",
        "kafka-partition",
        "kubernetes",
        "schema-registry",
        "avro",
        "encryption",
        "sasl",
        "jre",
        "agent",
        "lz4",
        "gateway",
        "edge",
    }


def test_each_extra_brings_what_it_serves() -> None:
    """So that a page which says `pip install 'scribengin[kafka]'` leads to something that runs."""
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    extras: dict[str, list[str]] = project["project"]["optional-dependencies"]

    def brought(extra: str) -> set[str]:
        found = {extra}
        for need in extras[extra]:
            if need.startswith("scribengin["):
                found.update(*(brought(name) for name in need.removeprefix("scribengin[").removesuffix("]").split(",")))
        return found

    parts = {"sasl": "server", "kubernetes": "server", "gateway": "server", "lz4": "agent"}
    served = {extra: parts.get(extra, "spark") for extra in extras.keys() - {"server", "agent"}}
    assert {extra: part for extra, part in served.items() if part not in brought(extra)} == {}
