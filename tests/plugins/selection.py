"""Which tests are `make test`'s, and what each needs that is neither Python nor Java: told here by place, for all tests.

`make test` leaves out what needs a store (`store`) and what is slow beside a shorter test of the same floor (`slow`); `make test-rest` runs
those, `make test-all` both. Of those that `make test` leaves out `--part K/N` takes the files of one part of N: `.ci/run` does. Each table
is by file or folder, below `tests`; the nearest entry counts. A test that needs something by itself says so with the marker `needs`.
"""

from __future__ import annotations

import re
import zlib
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

TESTS = Path(__file__).parents[1]

LIGHT = frozenset({"kafka", "spark-kafka"})
"""what `make test` may need: jars, which Ivy fetches. A ZooKeeper comes with PySpark"""

REST = "(store or slow)"
"""ends the expression that chooses what `make test` leaves out"""

STORES = (
    "kafka",
    "spark-kafka",
    "postgres",
    "cassandra",
    "hbase",
    "opensearch",
    "elasticsearch",
    "hdfs",
    "objects",
    "delta-spark",
    "s3a",
    "yarn",
    "kubernetes",
    "helm",
    "browser",
)
"""all that tests may need"""

NEEDS: dict[str, tuple[str, ...]] = {
    "connectors/kafka": ("kafka",),
    "connectors/kafka/test_spark_sink.py": ("kafka", "spark-kafka"),
    "connectors/kafka/test_spark_rival.py": ("kafka", "spark-kafka"),
    "connectors/group/test_kafka.py": ("kafka",),
    "end_to_end/tiers/test_bad_channels.py": ("kafka",),
    "embedded/test_jars.py": ("spark-kafka",),
    "embedded/test_kafka.py": ("kafka",),
    "embedded/test_services.py": ("kafka",),
    "embedded/test_cassandra.py": ("cassandra",),
    "embedded/test_hbase.py": ("hbase",),
    "embedded/test_hdfs.py": ("hdfs",),
    "embedded/test_yarn.py": ("hdfs", "yarn"),
    "embedded/test_objects.py": ("objects",),
    "embedded/test_postgres.py": ("postgres",),
    "embedded/test_search_servers.py": ("opensearch", "elasticsearch"),
    "console": ("browser",),
    "control/test_peers_up.py": ("kafka",),
    "deploy/test_chart.py": ("helm",),
    "deploy/test_installed.py": ("helm", "kubernetes"),
    "docs/test_delta_page.py": ("objects",),
    "docs/test_founding_picture.py": ("kafka", "hdfs", "postgres"),
    "docs/test_kafka_page.py": ("kafka",),
    "docs/test_tutorial.py": ("kafka",),
    "docs/test_json.py": ("spark-kafka",),
    "docs/test_store_pages.py": ("postgres", "cassandra", "hbase", "opensearch", "hdfs", "objects", "s3a"),
    "end_to_end/stores": ("postgres", "cassandra", "hbase", "opensearch", "objects"),
    "connectors/delta/test_readers.py": ("delta-spark",),
    "harness/kubernetes/test_cluster.py": ("kubernetes",),
    "harness/kubernetes/test_pods.py": ("kubernetes",),
    "harness/kubernetes/test_spark.py": ("kubernetes",),
    "harness/faults/test_kafka_faults.py": ("kafka",),
    "harness/faults/test_control_faults.py": ("kafka", "postgres"),
    "harness/faults/test_tier_faults.py": ("kafka",),
    "harness/faults/test_campaign.py": ("postgres", "objects"),
    "connectors/cassandra/test_full_disk.py": ("cassandra",),
    "connectors/hbase/test_full_disk.py": ("hbase",),
    "connectors/objects/test_full_disk.py": ("objects",),
    "connectors/objects/test_hdfs_full_disk.py": ("hdfs",),
    "connectors/objects/test_hdfs_state_flows.py": ("hdfs",),
    "connectors/objects/test_state_in_bucket.py": ("objects",),
    "connectors/objects/test_hdfs_flows.py": ("hdfs",),
    "hosts/test_remote_state.py": ("hdfs", "objects", "s3a"),
}
"""all tests of a place"""

NEEDS_BY_FIXTURE: dict[str, dict[str, str]] = {
    "launch": {"yarn": "yarn", "plane": "kubernetes"},
    "hosts": {"yarn": "yarn"},
    "connectors/cassandra": {"server": "cassandra"},
    "connectors/hbase": {"server": "hbase"},
    "connectors/postgres": {"server": "postgres", "guarded": "postgres", "small": "postgres"},
    "connectors/opensearch": {"server": "opensearch"},
    "connectors/objects": {"server": "objects", "hdfs": "hdfs"},
    "connectors/delta": {"server": "objects"},
    "end_to_end/tiers": {"cluster": "kafka"},
}
"""tests of a folder that ask for a fixture"""

NEEDS_BY_VALUE: dict[str, dict[str, str]] = {
    "connectors/objects": {
        "objects": "objects",
        "s3": "objects",
        "s3-manifest": "objects",
        "s3-listing": "objects",
        "hdfs": "hdfs",
        "hdfs-listing": "hdfs",
    },
    "launch": {"kubernetes": "kubernetes"},
}
"""tests of a folder that have a parameter of this value, by which a fixture chooses"""


SLOW = frozenset(Path(__file__).with_name("slow.txt").read_text().split("\n"))
"""tests beyond the minutes of `make test`: measured, see measure.py"""

LONGEST = (
    "cli/test_warm.py",
    "harness/faults/test_faults.py",
    "connectors/kafka/test_broken.py",
    "hosts/test_take_over.py",
    "hosts/test_spread_up.py",
    "connectors/kafka/test_spark_sink.py",
    "connectors/group/test_kafka.py",
    "harness/faults/test_kafka_faults.py",
    "harness/kubernetes/test_spark.py",
    "control/test_up.py",
    "connectors/kafka/test_flows.py",
    "connectors/group/test_flows.py",
    "local/test_moves.py",
    "deploy/test_installed.py",
    "launch/test_standalone.py",
    "launch/test_cluster_doctor.py",
    "launch/test_yarn.py",
    "launch/test_yarn_python.py",
    "launch/test_yarn_kerberos.py",
    "hosts/test_yarn_up.py",
    "launch/test_yarn_flow.py",
    "connectors/kafka/test_channels.py",
    "end_to_end/tiers/test_cut_equals_fused.py",
    "harness/faults/test_control_faults.py",
    "worker/test_fenced.py",
    "worker/test_registry_away.py",
    "docs/test_store_pages.py",
    "harness/faults/test_tier_faults.py",
    "connectors/postgres/test_flows.py",
    "connectors/opensearch/test_flows.py",
    "connectors/cassandra/test_flows.py",
    "connectors/hbase/test_flows.py",
    "connectors/delta/test_flows.py",
    "connectors/plain/test_http_flows.py",
    "connectors/plain/test_spark_sink.py",
    "connectors/objects/test_flows.py",
    "end_to_end/stores/test_four_sinks.py",
    "docs/test_tutorial.py",
    "spark/test_replay.py",
    "spark/test_vector_run.py",
    "docs/test_cookbook.py",
    "console/test_flow_parts.py",
    "console/test_keyboard.py",
    "console/test_large_records.py",
    "console/test_pictures.py",
    "console/test_tasks.py",
)
"""files of minutes; the others take up to one"""


@cache
def places(path: Path) -> tuple[str, ...]:
    """A test file below `tests`, and the folders around it, the nearest first."""
    own = path.relative_to(TESTS)
    return (own.as_posix(), *(parent.as_posix() for parent in own.parents))


def needs_of(path: Path, fixtures: Iterable[str], values: Mapping[str, object]) -> frozenset[str]:
    """Of a test in that file, with these fixtures, and these values of its parameters."""
    here = places(path)
    texts = {value for value in values.values() if isinstance(value, str)}
    found = set(_whole(path))
    for place in here:
        by_fixture = NEEDS_BY_FIXTURE.get(place, {})
        found |= {need for fixture, need in by_fixture.items() if fixture in fixtures}
        found |= {need for value, need in NEEDS_BY_VALUE.get(place, {}).items() if value in texts}
    if "opensearch" in found and values.get("server") == "elasticsearch":
        found = found - {"opensearch"} | {"elasticsearch"}
    return frozenset(found)


def needs(item: pytest.Item) -> frozenset[str]:
    """What a collected test needs, its own markers among it."""
    asked = getattr(item, "callspec", None)
    by_place = needs_of(item.path, getattr(item, "fixturenames", ()), asked.params if asked is not None else {})
    return by_place.union(*(mark.args for mark in item.iter_markers("needs")))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--part", metavar="K/N", help="of what `make test` leaves out only the files of part K, from 1 to N")
    parser.addoption("--pictures", metavar="FOLDER", help="keep the pictures of the console there, beside their references")


def is_of_part(path: Path, part: str | None) -> bool:
    """Whether a test file belongs to a part, `K/N`. Each file belongs to one of the N, on every machine to the same.

    Raises pytest.UsageError for what is no part.
    """
    if part is None:
        return True
    found = re.fullmatch(r"([0-9]+)/([0-9]+)", part)
    if found is None or not 1 <= int(found[1]) <= int(found[2]):
        raise pytest.UsageError(f"--part {part}: write K/N, such as 1/4, with K from 1 to N")
    return zlib.crc32(places(path)[0].encode()) % int(found[2]) == int(found[1]) - 1


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """A file of which no test can be chosen is not imported: with its checks that takes a tenth of a second, in each process."""
    named = {Path(argument.partition("::")[0]).resolve() for argument in config.args}
    if collection_path.suffix != ".py" or collection_path in named:
        return None
    chosen: str = config.getoption("markexpr")
    if "not store" in chosen:
        return True if _whole(collection_path) - LIGHT else None
    if chosen.endswith(REST):
        return None if may_be_rest(collection_path) and is_of_part(collection_path, config.getoption("--part")) else True
    return None


def may_be_rest(path: Path) -> bool:
    """Whether a test of this file may be one that `make test` leaves out."""
    here = places(path)
    return bool(
        _whole(path) - LIGHT
        or any(place in table for place in here for table in (NEEDS_BY_FIXTURE, NEEDS_BY_VALUE))
        or any(test.startswith(f"{here[0]}::") for test in SLOW)
        or "pytest.mark.needs(" in path.read_text()
    )


@cache
def _whole(path: Path) -> frozenset[str]:
    """What all tests of a file need."""
    return frozenset(next((NEEDS[place] for place in places(path) if place in NEEDS), ()))


def is_slow(path: Path, name: str) -> bool:
    """Of a test of that name, without its parameters."""
    return f"{path.relative_to(TESTS).as_posix()}::{name}" in SLOW


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Before what is not asked for is left out."""
    for item in items:
        if unknown := needs(item) - set(STORES):
            raise pytest.UsageError(f"{item.nodeid} needs {', '.join(sorted(unknown))}, which tests/plugins cannot provide")
        if needs(item) - LIGHT:
            item.add_marker(pytest.mark.store)
        if is_slow(item.path, getattr(item, "originalname", item.name)):
            item.add_marker(pytest.mark.slow)
