"""Two hosts with folders of their own: each has a flow's code from the masters, by its hash, and its versions change and go back."""

from __future__ import annotations

import json
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from fileserver import serving
from plane import until

from scribengin.control import admin
from scribengin.control.home import Home
from scribengin.control.submit import submission
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

    def submits(self, version: str) -> str:
        """The package's hash."""
        (self.folder / "steps.py").write_text(STEPS.replace("VERSION", version))
        made, _ = submission(self.folder / "flow.yaml", self.home.packages, self.home.state)
        admin.apply(self.plane.registry, made, state=lambda _: str(self.home.state), by="me")
        return made.package

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


@pytest.mark.timeout(900)
def test_a_step_changes_between_versions_and_goes_back_on_two_hosts_with_folders_of_their_own(plane: Plane, tmp_path: Path) -> None:
    person = Person(plane, tmp_path / "orders")
    with serving(person.home.packages) as address:
        plane.registry.commit(Create(MASTERS("files").path, {"http": address, "host": socket.gethostname()}, ephemeral=True))
        plane.master("m1")
        for name in ("a", "b"):
            plane.real_node(name)
        person.adds()
        one = person.submits("one")
        until(lambda: person.finds() == [(0, "one")], "the first record", 240)
        first = plane.holder("orders", "main")
        ran_on = next(each["node"] for each in plane.says("nodes") if each["workers"])
        assert packages(plane, ran_on) == {one}
        other = "b" if ran_on == "a" else "a"
        # the next version runs on the other host, which has seen none before
        plane.says("map", "orders.main", other)
        two = person.submits("two")
        plane.comes_to("orders", "running", 240)
        person.adds()
        until(lambda: person.finds() == [(0, "one"), (1, "two")], "the second record", 240)
        assert plane.holder("orders", "main")["pid"] != first["pid"]
        assert two in packages(plane, other)
        # and back, there: code and flow together
        plane.says("rollback", "orders", "1")
        plane.comes_to("orders", "running", 240)
        person.adds()
        until(lambda: person.finds() == [(0, "one"), (1, "two"), (2, "one")], "the third record", 240)
        assert packages(plane, other) == {one, two}
        plane.says("stop", "orders", "--wait", "4m")


@pytest.mark.timeout(600)
def test_a_package_that_is_not_what_its_hash_says_is_the_runs_cause(plane: Plane, tmp_path: Path) -> None:
    person = Person(plane, tmp_path / "orders")
    with serving(person.home.packages, spoil=True) as address:
        plane.registry.commit(Create(MASTERS("files").path, {"http": address}, ephemeral=True))
        plane.master("m1")
        plane.real_node("a")
        package = person.submits("one")
        plane.comes_to("orders", "failed", 120)
    (tier,) = plane.says("status", "orders")["tiers"]
    assert f"package {package}: package hash does not match" in tier["cause"]
    assert packages(plane, "a") == set()
    assert tier["failures"] == 1
