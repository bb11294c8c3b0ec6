"""The flows of the cookbook: each has tests of its own, and they pass."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from doc_pages import ROOT

from scribengin.flow_tests.report import outcome_text
from scribengin.flow_tests.session import LazySpark
from scribengin.flow_tests.suite import read_suite, run_suites

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

COOKBOOK = ROOT / "examples" / "cookbook"
NAMES = (COOKBOOK / "flows.txt").read_text().split()


def test_the_page_has_every_flow_of_the_folder() -> None:
    assert sorted(NAMES) == sorted(path.parent.name for path in COOKBOOK.glob("*/flow.yaml"))
    assert len(NAMES) == 10


@pytest.mark.timeout(600)
def test_every_flow_gives_what_its_own_tests_expect(tmp_path: Path, spark: SparkSession) -> None:
    folder = tmp_path / "cookbook"
    shutil.copytree(COOKBOOK, folder)
    with LazySpark(lent=spark) as session:
        outcomes = run_suites([read_suite(folder / name / "flow.yaml") for name in NAMES], session, watch=lambda _: None)
    assert "\n".join(outcome_text(outcome) for outcome in outcomes if not outcome.passed) == ""
    assert {outcome.file for outcome in outcomes} == {str(folder / name / "flow.yaml") for name in NAMES}
    assert not [path for path in folder.rglob("*") if path.name in {"out", ".scribengin"}], "a test writes nothing beside the flow"
