"""The flows of examples/tiers: each gives what it gives in one piece, and what its comment says."""

from __future__ import annotations

import base64
import shutil
import sys
from pathlib import Path
from subprocess import run
from typing import TYPE_CHECKING, Any

import pytest

from scribengin.local.contract import RunSettings
from scribengin.local.run import run_flow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLES = Path(__file__).parents[2] / "examples" / "tiers"
FLOWS = sorted(path.stem for path in EXAMPLES.glob("*.yaml"))

SHOWN = {"union", "wan"}
"""without `long`: streams that meet, and a channel that is sealed"""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("events")
    run([sys.executable, EXAMPLES / "generate.py", "--size", "400", "--folder", folder], check=True)
    return folder / "data"


def written(folder: Path) -> list[tuple[str, Any]]:
    """(folder below out/, row) of every row, sorted."""
    import pyarrow.dataset as datasets

    rows = []
    for part in folder.glob("out/**/part-*"):
        kind = "parquet" if part.suffix == ".parquet" else "json"
        rows += [(str(part.parent.relative_to(folder)), repr(row)) for row in datasets.dataset(part, format=kind).to_table().to_pylist()]
    return sorted(rows)


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.long] * (name not in SHOWN)) for name in FLOWS])
def test_an_example_gives_the_same_cut_and_in_one_piece(
    name: str, data: Path, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WAN_KEY", base64.b64encode(bytes(32)).decode())
    found = {}
    for way in ("cut", "fused"):
        folder = tmp_path / way
        shutil.copytree(data, folder / "data")
        shutil.copy(EXAMPLES / "steps.py", folder)
        text = (EXAMPLES / f"{name}.yaml").read_text()
        (folder / "flow.yaml").write_text(text if way == "cut" else text[: text.index("\ntiers:")])
        result = run_flow(folder / "flow.yaml", RunSettings(once=True), lambda _: None, spark=spark)
        assert [problem for problem in result.problems if problem.severity == "error"] == []
        assert result.violations == ()
        found[way] = written(folder)
    assert found["cut"] == found["fused"]
    assert len(found["cut"]) >= 80
    if name == "collector":
        assert {folder for folder, _ in found["cut"]} == {"out/collector/came_from=from_web", "out/collector/came_from=from_app"}
