from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from scribengin.core.errors import InputError
from scribengin.core.problems import Place
from scribengin.core.types import parse_schema
from scribengin.flow_tests.calls import _batches
from scribengin.flow_tests.twin import write_given
from scribengin.plan.test_files import files_named
from scribengin.spec.flow_tests import GivenRows
from scribengin.spec.model import SchemaSpec, Source
from scribengin.testing import run_flow
from tests.flow_tests.shop_flow import ORDERS, STEPS

if TYPE_CHECKING:
    from pathlib import Path

ORDERS_SOURCE = Source("orders", "files", options={"format": "json"}, schema=SchemaSpec(parse_schema("id BIGINT")))


def written(folder: Path, rows: GivenRows) -> list[str]:
    write_given(ORDERS_SOURCE, folder / "given", 1, rows, folder, lambda row: Place("t.yaml", row + 1))
    return sorted(path.read_text() for path in (folder / "given").iterdir())


def test_files_of_one_name_in_two_folders_are_all_given(tmp_path: Path) -> None:
    for name in ("x", "y"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.jsonl").write_text(f"{name}\n")
    assert written(tmp_path, GivenRows(files=("*/a.jsonl", "x/a.jsonl"))) == ["x\n", "x\n", "y\n"]


def test_patterns_may_be_absolute(tmp_path: Path) -> None:
    (tmp_path / "deep" / "er").mkdir(parents=True)
    (tmp_path / "deep" / "er" / ".a.yaml").touch()
    for pattern in (f"{tmp_path}/**/*.yaml", "**/*.yaml", "deep/*/*.yaml", "dee[p]/e**r/.a.yaml"):
        assert files_named(tmp_path, pattern) == [tmp_path / "deep" / "er" / ".a.yaml"]
    assert files_named(tmp_path, "*") == []


def test_a_raw_record_is_one_line(tmp_path: Path) -> None:
    assert written(tmp_path, GivenRows(("{", '{"id": 1}\n'))) == ['{\n{"id": 1}\n']
    with pytest.raises(InputError, match="line end") as wrong:
        written(tmp_path, GivenRows(("{", '{"id":\n 1}')))
    assert [problem.place.line for problem in wrong.value.problems] == [2]


def test_rows_may_come_from_a_generator_and_are_no_mapping() -> None:
    assert _batches("s", ({"id": number} for number in range(2))) == (GivenRows(({"id": 0}, {"id": 1})),)
    assert _batches("s", iter([[{"id": 1}], ["{"]])) == (GivenRows(({"id": 1},)), GivenRows(("{",)))
    for wrong in ({"id": 1}, "id"):
        with pytest.raises(TypeError, match="pass a list of rows"):
            _batches("s", wrong)


def test_a_batch_that_is_not_given_is_refused_before_spark_starts(tmp_path: Path) -> None:
    (tmp_path / "steps.py").write_text(STEPS)
    flow = tmp_path / "flow.yaml"
    flow.write_text(ORDERS)
    with pytest.raises(ValueError, match="batch 2"):
        run_flow(flow, {"orders": [{"id": 1}]}, crash_after="batch 2")
    with pytest.raises(ValueError, match="2 times"):
        run_flow(flow, {"orders": [{"id": 1}]}, clock=[datetime(2026, 1, day, tzinfo=UTC) for day in (1, 2)])
