"""A flow out of packages: two stores in two folders stand for two hosts, its data lies elsewhere, a step changes between versions."""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from scribengin.local.audit import audit_flow, planned_changes
from scribengin.local.contract import RunSettings
from scribengin.local.prepare import prepare
from scribengin.local.run import run_flow
from scribengin.packages.make import make_package
from scribengin.packages.store import PackageStore, read_pieces

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

YAML = """\
version: 1
name: orders
sources:
  orders: {type: files, path: data, format: json, schema: "id BIGINT, who STRING"}
steps:
  marked: {from: orders, python: "steps:marked"}
sinks:
  kept: {from: marked, type: files, path: out/kept, format: json}
"""
PYTHON = """\
from scribengin import Flow, source
from steps import marked

rows = source("files", id="orders", path="data", format="json", schema="id BIGINT, who STRING").map(marked, id="marked")
flow = Flow("orders", rows.to("files", id="kept", path="out/kept", format="json"))
"""
STEPS = "from lib.names import VERSION\n\ndef marked(row):\n    return row | {'who': VERSION}\n"


@pytest.fixture(autouse=True)
def _no_modules_stay(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield
    for name in list(sys.modules):  # one that was there before may be another by now
        if name.partition(".")[0] in ("steps", "lib", "orders_flow"):
            del sys.modules[name]


def packed(folder: Path, version: str, file: str) -> Path:
    """The package of one version of the flow, made in a folder that is gone afterwards."""
    texts = {
        file: YAML if file.endswith(".yaml") else PYTHON,
        "steps.py": STEPS,
        "lib/__init__.py": "",
        "lib/names.py": f"VERSION = '{version}'\n",
    }
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    package = make_package(folder, {}).package
    shutil.rmtree(folder)
    written = folder.with_suffix(".package")
    written.write_bytes(package.data)
    return written


@dataclass
class Host:
    """A store of its own, and a worker that runs what it is told by hash, over data that lies elsewhere."""

    store: PackageStore
    base: Path
    spark: SparkSession

    def fetch(self, package: Path) -> str:
        return self.store.put(read_pieces(package)).id

    def flow(self, id_: str) -> Path:
        folder = self.store.get(id_)
        (flow,) = self.store.read(id_).manifest.flows
        return folder / flow.path

    def run(self, id_: str) -> dict[str, int]:
        """What this run has read and written."""
        result = run_flow(self.flow(id_), RunSettings(once=True, base=self.base), lambda view: None, spark=self.spark)
        assert (result.state, result.balanced) == ("finished", True), result.problems
        (query,) = result.queries
        return {"in": query.this_run.rows_in, "out": query.this_run.out}


def rows(base: Path) -> dict[int, str]:
    """id → which version wrote it; each id once."""
    found = [json.loads(line) for part in (base / "out" / "kept").glob("part-*") for line in part.read_text().splitlines()]
    assert len({row["id"] for row in found}) == len(found)
    return {row["id"]: row["who"] for row in found}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("file", ["orders.yaml", "orders_flow.py"])
def test_a_step_changes_between_versions_and_goes_back_over_one_state_on_two_hosts(tmp_path: Path, spark: SparkSession, file: str) -> None:
    other = tmp_path / "another"  # a flow in Python, executed here before: its modules are not this one's
    (other / "lib").mkdir(parents=True)
    (other / "lib" / "__init__.py").touch()
    (other / "other_flow.py").write_text(
        "from scribengin import Flow, source\nimport lib\nflow = Flow('other', source('sequence', rows=1).to('console'))\n"
    )
    assert prepare(other / "other_flow.py", state=None).name == "other"
    assert "VERSION" not in vars(sys.modules["lib"])
    base = tmp_path / "shared"
    (base / "data").mkdir(parents=True)
    first, second = (Host(PackageStore(tmp_path / name / "packages"), base, spark) for name in ("a", "b"))
    old, new = packed(tmp_path / "v1", "one", file), packed(tmp_path / "v2", "two", file)

    def arrive(number: int) -> None:
        lines = [json.dumps({"id": 10 * number + n, "who": "?"}) + "\n" for n in range(3)]
        (base / "data" / f"{number}.jsonl").write_text("".join(lines))

    arrive(1)
    v1 = first.fetch(old)
    assert first.run(v1) == {"in": 3, "out": 3}
    arrive(2)
    v2 = second.fetch(new)
    changes = planned_changes(prepare(second.flow(v2), state=None, base=base))
    assert [change.changed for change in changes.queries] == [("marked",)]
    assert second.run(v2) == {"in": 3, "out": 3}
    arrive(3)
    assert second.run(second.fetch(old)) == {"in": 3, "out": 3}  # back, on the host that had only the new one
    arrive(4)
    assert first.run(first.fetch(new)) == {"in": 3, "out": 3}
    expected = {10 * number + n: version for number, version in enumerate(("one", "two", "one", "two"), 1) for n in range(3)}
    assert rows(base) == expected
    prepared = prepare(first.flow(v2), state=None, base=base)
    assert audit_flow(prepared).balanced
    assert [each.id for each in first.store.packages()] == [each.id for each in second.store.packages()] == sorted([v1, v2])
    for host in (first, second):
        for id_ in (v1, v2):
            host.store.verify(id_)
    assert not planned_changes(prepare(second.flow(v2), state=None, base=base)).queries[0].changed
