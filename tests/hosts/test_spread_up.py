"""Utilities over several hosts: a real master, nodes and Spark. What runs where is shown, changed, and made anew when a host is lost; the
rows are those of one piece."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from plane import Plane, clean, until

from scribengin.registry.access import RegistryAddress

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from scribengin.embedded.zookeeper import ZooKeeper

APP = """\
from scribengin import App, sink, source


def odd(row) -> bool:
    return row["id"] % 2 == 1


def thirds(row) -> bool:
    return row["id"] % 3 > 0


def fifths(row) -> bool:
    return row["id"] % 5 > 0


app = App(
    "NAME",
    source=source("files", id="n", path="data", format="json", schema="id BIGINT NOT NULL, ts TIMESTAMP NOT NULL", watermark="ts 1m"),
    utilities=UTILITIES,
    order="free",
    sink=sink("files", path="out", format="json"),
)
"""
NODES = ("a", "b", "c")
FILE = 100
"""rows of each"""
SOON_S = 400.0


@dataclass
class Person:
    """Somebody with an App, in a folder that all hosts see."""

    plane: Plane
    name: str
    utilities: str
    files: int = 0

    def __post_init__(self) -> None:
        self.folder = self.plane.folder / self.name
        (self.folder / "data").mkdir(parents=True)
        (self.folder / "app.py").write_text(APP.replace("NAME", self.name).replace("UTILITIES", self.utilities))

    def submits(self, *words: str) -> Any:
        return self.plane.says("apply", str(self.folder / "app.py"), "--spread", *words)

    def adds(self) -> int:
        """A file of records comes, each a second after the one before it; how many there are now."""
        path, first = self.folder / "data" / f".{self.files}", datetime(2026, 1, 1, tzinfo=UTC)
        ids = range(self.files * FILE, (self.files + 1) * FILE)
        path.write_text("".join(json.dumps({"id": n, "ts": (first + timedelta(seconds=n)).isoformat()}) + "\n" for n in ids))
        path.rename(path.with_name(f"{self.files}.jsonl"))
        self.files += 1
        return self.files * FILE

    def finds(self, folder: Path | None = None) -> Counter[str]:
        """The lines that have come out, and how often each."""
        return Counter(line for file in ((folder or self.folder) / "out").glob("part-*") for line in file.read_text().splitlines())

    def ids(self) -> list[int]:
        return sorted(json.loads(line)["id"] for line in self.finds().elements())

    def gets(self, expected: list[int]) -> None:
        until(lambda: len(self.ids()) >= len(expected), f"{self.name} has the rows of {self.files} files", SOON_S)
        assert self.ids() == expected

    def hosts(self) -> dict[str, str]:
        """Tier → the node that runs it, as `nodes` shows it."""
        mine = [(worker, each["node"]) for each in self.plane.says("node", "list") if each["up"] for worker in each["workers"]]
        return {
            worker.rpartition("-")[0].removeprefix(f"{self.name}."): node for worker, node in mine if worker.startswith(f"{self.name}.")
        }

    def in_one_piece(self) -> Counter[str]:
        """The lines that the same App makes of the same records by itself."""
        other = self.folder / "whole"
        other.mkdir()
        shutil.copy(self.folder / "app.py", other)
        shutil.copytree(self.folder / "data", other / "data")
        command = [sys.executable, "-m", "scribengin.cli", "run", "app.py", "--once"]
        subprocess.run(command, cwd=other, env=clean(), capture_output=True, check=True, timeout=300)
        return self.finds(other)


def loses(plane: Plane, node: str) -> None:
    """A machine is gone: the node and its workers, all at once."""
    workers = [psutil.Process(each["pid"]) for each in plane.says("node", "describe", node)["now"]["workers"]]
    assert workers
    for worker in workers:
        worker.kill()
    plane.kill(node)


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory, zookeeper: ZooKeeper) -> Iterator[Plane]:
    """A master and three nodes, for all tests here."""
    made = Plane(tmp_path_factory.mktemp("spread"), RegistryAddress((zookeeper.address,), "/spread"))
    try:
        made.master("m1")
        for name in NODES:
            made.real_node(name)
        yield made
    finally:
        made.close()


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_each_utility_has_a_host_which_is_changed_and_lost_and_the_rows_are_those_of_one_piece(plane: Plane) -> None:
    person = Person(plane, "row", "[odd, thirds, fifths]")

    def kept() -> list[int]:
        return [n for n in range(person.files * FILE) if n % 2 and n % 3 and n % 5]

    # shown before, and as it is
    tiers = {"utilities_1": ["odd"], "utilities_2": ["thirds"], "utilities_3": ["fifths"]}
    told = person.submits("--dry-run")
    assert (told["spread"], told["applied"], plane.says("list")) == ({"row": tiers}, [], [])
    person.adds()
    assert person.submits()["spread"] == {"row": tiers}
    person.gets(kept())
    before = person.hosts()
    assert (sorted(before), sorted(before.values())) == (sorted(tiers), list(NODES))

    # changed while records come
    there = before["utilities_3"]
    person.adds()
    plane.says("node", "map", "row.utilities_2", there, "--wait", "5m")
    person.adds()
    assert person.hosts() == before | {"utilities_2": there}
    person.gets(kept())

    # a host is lost while records come: one tier waits for it, which was told to, and the other goes on elsewhere
    person.adds()
    loses(plane, there)
    person.adds()
    until(lambda: "scribengin node unmap row.utilities_2" in str(plane.says("list")), "it says what it waits for")
    plane.says("node", "unmap", "row.utilities_2")
    person.adds()
    person.gets(kept())
    after = person.hosts()
    assert there not in after.values()
    assert after["utilities_1"] == before["utilities_1"]
    plane.says("stop", "row", "--wait", "5m")
    assert [query["batches"] > 0 for query in plane.says("audit", "row")["queries"]] == [True] * 3, "and all of it balances"
    assert person.finds() == person.in_one_piece()
    plane.real_node(there)


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_branches_meet_each_row_once_though_a_host_is_lost_between_them(plane: Plane) -> None:
    both, either = Person(plane, "both", "[odd, thirds]"), Person(plane, "either", "[odd, thirds]")

    def adds() -> None:
        both.adds()
        either.adds()

    def gets() -> None:
        count = both.files * FILE
        both.gets([n for n in range(count) if n % 2 and n % 3])
        either.gets([n for n in range(count) if n % 2 or n % 3])

    adds()
    tiers = {"utilities_1": ["odd"], "utilities_2": ["thirds"], "utilities_3": []}
    assert both.submits("3", "--branches", "id ts 10m")["spread"] == {"both": tiers}
    assert either.submits("3", "--branches", "id ts 10m union")["spread"] == {"either": tiers}
    gets()

    # where one branch of each runs is lost; the other branches go on, and what they have kept waits or has been given
    lost = both.hosts()["utilities_2"]
    plane.says("node", "map", "either.utilities_1", lost, "--wait", "5m")
    adds()
    gone = {person.name: {tier for tier, node in person.hosts().items() if node == lost} for person in (both, either)}
    assert "utilities_2" in gone["both"]
    assert "utilities_1" in gone["either"]
    loses(plane, lost)
    plane.says("node", "unmap", "either.utilities_1")
    adds()
    gets()
    assert lost not in {*both.hosts().values(), *either.hosts().values()}
    for person in (both, either):
        plane.says("stop", person.name, "--wait", "5m")
        audit = plane.says("audit", person.name)
        assert [query["batches"] > 0 for query in audit["queries"]] == [True] * 3, "and all of it balances"
        late = [counts["late"] for query in audit["queries"] for counts in query["nodes"].values()]
        assert not any(late), "each tier's clock waits for the branch that is behind"
    assert both.finds() == both.in_one_piece()
    plane.real_node(lost)
