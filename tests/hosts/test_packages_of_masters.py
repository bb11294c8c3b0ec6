"""Two hosts with folders of their own: each has a flow's code from the masters, by its hash, and its versions change and go back."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from fileserver import serving
from plane import until

from harness.submit import submission
from scribengin.control import flow_requests
from scribengin.control.home import Home
from scribengin.packages.store import PackageStore
from scribengin.registry.contract import Create
from scribengin.registry.tree import MASTERS

if TYPE_CHECKING:
    from pathlib import Path

    from plane import Plane

FLOW = """\
version: 1
name: orders
sources: {orders: {type: files, path: data, format: json, schema: "id BIGINT, who STRING"}}
steps: {marked: {from: orders, python: "steps:marked"}}
sinks: {kept: {from: marked, type: files, path: out, format: json}}
"""
STEPS = """\
from scribengin import record


@record
def marked(row):
    return {"id": row["id"], "who": "VERSION"}
"""


@dataclass
class Person:
    """Somebody with a flow and a store of packages, which a master hands out."""

    plane: Plane
    folder: Path
    files: int = 0

    def __post_init__(self) -> None:
        (self.folder / "data").mkdir(parents=True)
        (self.folder / "flow.yaml").write_text(FLOW)
        self.home = Home(self.plane.folder / "person")

    def packed(self, version: str) -> str:
        """The hash of the package, which is put into a store of the person's own."""
        (self.folder / "steps.py").write_text(STEPS.replace("VERSION", version))
        made, _ = submission(self.folder / "flow.yaml", self.home.packages, self.home.state)
        flow_requests.apply(self.plane.registry, made, state=lambda _: str(self.home.state), by="me")
        return made.package

    def submits(self, version: str) -> None:
        """As people do."""
        (self.folder / "steps.py").write_text(STEPS.replace("VERSION", version))
        self.plane.says("apply", str(self.folder / "flow.yaml"))

    def adds(self) -> None:
        path = self.folder / "data" / f".{self.files}"
        path.write_text(f'{{"id": {self.files}, "who": "?"}}\n')
        path.rename(path.with_name(f"{self.files}.jsonl"))
        self.files += 1

    def finds(self) -> list[tuple[int, str]]:
        lines = [line for file in (self.folder / "out").glob("part-*") for line in file.read_text().splitlines()]
        return sorted((json.loads(line)["id"], json.loads(line)["who"]) for line in lines)


def packages(plane: Plane, node: str) -> set[str]:
    return {each.id for each in PackageStore(plane.folder / node / "packages").packages()}


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_step_changes_between_versions_and_goes_back_on_two_hosts_with_folders_of_their_own(plane: Plane, tmp_path: Path) -> None:
    person = Person(plane, tmp_path / "orders")
    for name in ("m1", "m2"):
        plane.master(name)
    for name in ("a", "b"):
        plane.real_node(name)
    person.adds()
    person.submits("one")
    until(lambda: person.finds() == [(0, "one")], "the first record", 240)
    first = plane.holder("orders", "main")
    ran_on = next(each["node"] for each in plane.says("node", "list") if each["workers"])
    (one,) = packages(plane, ran_on)
    other = "b" if ran_on == "a" else "a"
    assert packages(plane, other) == set()
    # the next version runs on the other host, which has seen none before
    plane.says("node", "map", "orders.main", other)
    person.submits("two")
    person.adds()
    until(lambda: person.finds() == [(0, "one"), (1, "two")], "the second record", 240)
    assert plane.holder("orders", "main")["pid"] != first["pid"]
    # and back, there: code and flow together, under another leader
    gone = plane.leader()
    plane.kill(gone)
    until(lambda: plane.leader() not in ("", gone), "another leads")
    plane.says("rollback", "orders", "1")
    person.adds()
    until(lambda: person.finds() == [(0, "one"), (1, "two"), (2, "one")], "the third record", 240)
    assert one in packages(plane, other)
    assert len(packages(plane, other)) == 2
    plane.says("stop", "orders", "--wait", "4m")


@pytest.mark.timeout(600)
def test_a_package_that_is_not_what_its_hash_says_is_the_runs_cause(plane: Plane, tmp_path: Path) -> None:
    person = Person(plane, tmp_path / "orders")
    with serving(person.home.packages, spoil=True) as address:
        plane.registry.commit(Create(MASTERS("files").path, {"http": address}, ephemeral=True))
        plane.master("m1")
        plane.real_node("a")
        package = person.packed("one")
        plane.comes_to("orders", "failed", 480)  # what fails otherwise before is tried again, up to a minute later
    (tier,) = plane.says("status", "orders")["tiers"]
    assert f"package {package}: package hash does not match" in tier["cause"]
    assert packages(plane, "a") == set()
