"""Intents: what a Batch is going to be, agreed on before anything of it runs."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

import pytest

from scribengin.core.errors import StateError
from scribengin.core.records import seal
from scribengin.core.storage import put_if_absent
from scribengin.state.contract import SourceRange
from scribengin.state.intents import Intent, Intents

if TYPE_CHECKING:
    from pathlib import Path


def intent(number: int, end: int = 1, *, units: int = 2) -> Intent:
    return Intent(number, (SourceRange("a", 0, end),), units, f"hash-{end}", "plan")


def test_the_first_one_stands_and_others_are_told(tmp_path: Path) -> None:
    intents = Intents(tmp_path / "intents")
    assert intents.read(0) is None
    assert intents.put(intent(0, 1)) == intent(0, 1)
    assert intents.put(intent(0, 2)) == intent(0, 1)
    assert Intents(tmp_path / "intents").read(0) == intent(0, 1)


def test_one_that_does_not_say_where_sql_runs_is_of_spark(tmp_path: Path) -> None:
    body = asdict(intent(0))
    del body["in_tail"]
    put_if_absent(tmp_path / "0000000000.json", seal("intent", 1, body))
    assert Intents(tmp_path).read(0) == replace(intent(0), in_tail=False)
    Intents(tmp_path).put(replace(intent(1), in_tail=True))
    assert Intents(tmp_path).read(1) == replace(intent(1), in_tail=True)


def test_of_many_at_once_all_hold_to_one(tmp_path: Path) -> None:
    with ThreadPoolExecutor(16) as pool:
        told = list(pool.map(lambda end: Intents(tmp_path).put(intent(7, end)), range(16)))
    assert len(set(told)) == 1


def test_those_of_decided_batches_are_dropped_and_the_one_under_way_stays(tmp_path: Path) -> None:
    intents = Intents(tmp_path)
    for number in range(4):
        intents.put(intent(number))
    intents.drop(3)
    assert [intents.read(number) is not None for number in range(4)] == [False, False, False, True]
    intents.drop(3)


def test_a_torn_one_is_told(tmp_path: Path) -> None:
    Intents(tmp_path).put(intent(0))
    (file,) = tmp_path.glob("*.json")
    file.write_bytes(file.read_bytes()[:-9])
    with pytest.raises(StateError):
        Intents(tmp_path).read(0)
