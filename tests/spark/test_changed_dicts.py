"""What a vector step makes of rows that a person's function has changed, or has made several of."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from scribengin.core.types import parse_schema
from scribengin.spark.chunk import Chunk, UnknownOrigin
from scribengin.spark.dead_letter_writer import DeadLetterWriter, LetterRules
from scribengin.spark.node_schema import vector_node
from scribengin.spark.program import PythonNode
from scribengin.spark.python_step import RecordStep
from scribengin.spark.stage import VectorRun
from scribengin.spark.watchdog import Watchpoint
from scribengin.spec.model import Filter, Step
from scribengin.state.contract import Counts

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SCHEMA = parse_schema("id BIGINT, t STRING")


def wrong_type(row: dict[str, Any]) -> bool:
    if row["id"] == 1:
        row["t"] = 5
    return True


def key_more(row: dict[str, Any]) -> bool:
    if row["id"] == 1:
        row["new"] = 1
    return row["id"] != 4


@pytest.mark.parametrize(("function", "left"), [(wrong_type, [2, 3, 4]), (key_more, [2, 3])])
def test_a_row_that_no_longer_fits_is_dead_before_a_vector_step(tmp_path: Path, function: Callable[..., Any], left: list[int]) -> None:
    letters = DeadLetterWriter(LetterRules(tmp_path, "q", {}), 0, "attempt")
    node = PythonNode("py", (), "x:f", "record", SCHEMA, SCHEMA, (), 30.0)
    counts, filtered = Counts(), Counts()
    step = RecordStep(node, function, None, counts=counts, letters=letters, hangs=Watchpoint("w", 30.0), settle=True)
    run = vector_node([Step("some", ("py",), Filter("id > 0"))], lambda _: SCHEMA)
    assert run is not None
    vector = VectorRun(run, filtered, letters)
    rows = [{"id": id_, "t": "a"} for id_ in (1, 2, 3, 4)]
    outs = [out for _, chunk in step(Chunk(UnknownOrigin(), None, rows=rows)) for out in vector(chunk)]
    letters.abort()
    assert [row["id"] for out in outs for row in out.rows] == left
    assert (counts.rows_in, counts.out, counts.dead, counts.filtered) == (4, len(left), 1, 3 - len(left))
    assert (filtered.rows_in, filtered.out, filtered.filtered) == (len(left), len(left), 0)


def test_rows_of_one_record_that_die_at_two_steps_are_told_apart_in_the_order_of_the_rows(tmp_path: Path) -> None:
    letters = DeadLetterWriter(LetterRules(tmp_path, "q", {}), 0, "attempt")
    first = Step("a", ("rows",), Filter("id > 0"), require=(("odd", "id <> 1 AND id <> 3"),))
    second = Step("b", ("a",), Filter("id > 0"), require=(("two", "id <> 2"),))
    run = vector_node([first, second], lambda _: SCHEMA)
    assert run is not None
    rows = [{"id": id_, "t": "a"} for id_ in (1, 2, 3)]
    assert list(VectorRun(run, Counts(), letters)(Chunk(UnknownOrigin(), [0, 0, 0], rows=rows))) == []
    letters.close()
    (file,) = (path for path in tmp_path.rglob("*") if path.is_file())
    assert re.findall(rb'"id":"([^"]+)"', file.read_bytes()) == [b"?/:#a", b"?/:#b", b"?/:#a.1"]
