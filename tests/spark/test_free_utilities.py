"""Tests that run in any order: what comes out, and what dies of what, is the same in each; a simple loop is the judge."""

from __future__ import annotations

import copy
import json
import pickle
from collections import Counter
from itertools import permutations
from random import Random
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scribengin.core.types import parse_schema
from scribengin.formats.structs import StructForm
from scribengin.spark.chunk import Chunk, UnknownOrigin
from scribengin.spark.predicate_pushdown import compile_predicate
from scribengin.spark.step_ordering import Chooser, Evidence
from scribengin.spark.utilities import Free, Utility
from scribengin.spark.watchdog import Watchpoint, checksum_of
from scribengin.state.contract import Counts
from scribengin.state.ledger import balance

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

SCHEMA = parse_schema("id BIGINT, a BIGINT, b BIGINT")
Dead = tuple[int, str, str, str]


class Graveyard:
    """Stands where the letters of a task do: keeps (record, utility, reason, message)."""

    def __init__(self) -> None:
        self.dead: list[Dead] = []

    def bury(
        self, node: str, chunk: Chunk, index: int, reason: str, message: str, *, error: BaseException | None = None, came: Any
    ) -> None:
        assert error is not None
        assert came is SCHEMA
        self.dead.append((chunk.rows[index]["id"], node, reason, message))


class Verdicts:
    """A test with a verdict for each id: keep, drop, none (a drop), raise, stop (a `next` that finds nothing), odd (no bool)."""

    def __init__(self, name: str, verdicts: Sequence[str]) -> None:
        self.name = name
        self.verdicts = verdicts

    def __call__(self, row: Any) -> Any:
        verdict = self.verdicts[row["id"] % len(self.verdicts)]
        if verdict == "raise":
            raise ValueError(f"{self.name} of {row['id']}")
        if verdict == "stop":
            return next(iter(()))
        return {"keep": True, "drop": False, "none": None, "odd": "yes"}[verdict]


def made(functions: Sequence[Callable[[Any], Any]], order: Sequence[int], seed: int = 0) -> tuple[Free, Graveyard, list[Counts]]:
    letters, names = Graveyard(), [f"f{index}" for index in range(len(functions))]
    counts = [Counts() for _ in functions]
    tests = [
        Utility(name, f"u.{name}", function, compile_predicate(function, SCHEMA), count, Watchpoint(name, 30.0))
        for name, function, count in zip(names, functions, counts, strict=True)
    ]
    chooser = Chooser(names, Evidence.nothing(len(names)), order, chance=Random(seed))
    return Free(tests, SCHEMA, letters, {}, chooser=chooser), letters, counts  # type: ignore[arg-type]


def judged(rows: Sequence[dict[str, Any]], functions: Sequence[Callable[[Any], Any]]) -> tuple[list[int], list[Dead]]:
    """The rule, record by record: what goes on, and what is dead of what."""
    out: list[int] = []
    dead: list[Dead] = []
    for row in rows:
        said: list[bool | Exception] = []
        for function in functions:
            try:
                answer = function(row)
                odd = answer is not None and not isinstance(answer, bool)
                said.append(TypeError(f"the function is annotated -> bool and returned {type(answer).__name__}") if odd else answer is True)
            except Exception as error:
                said.append(error)
        raised = [(index, each) for index, each in enumerate(said) if isinstance(each, Exception)]
        if False in said:
            continue
        if raised:
            index, first = raised[0]
            dead.append((row["id"], f"u.f{index}", "raised", f"{type(first).__name__}: {first}"))
        else:
            out.append(row["id"])
    return out, dead


def ran(step: Free, rows: Sequence[dict[str, Any]], block: int) -> list[int]:
    out: list[int] = []
    for first in range(0, len(rows), block):
        part = [dict(row) for row in rows[first : first + block]]
        for _, kept in step(Chunk(UnknownOrigin(), range(len(part)), rows=part)):
            out += [row["id"] for row in kept.rows]
    return out


VERDICTS = st.lists(st.sampled_from(["keep", "keep", "drop", "none", "raise", "stop", "odd"]), min_size=1, max_size=7)


@settings(max_examples=60, deadline=None)
@given(st.lists(VERDICTS, min_size=1, max_size=4), st.integers(0, 40), st.integers(1, 17), st.integers(0, 5))
def test_what_comes_out_and_what_is_dead_is_the_same_in_any_order(verdicts: list[list[str]], rows: int, block: int, seed: int) -> None:
    functions = [Verdicts(f"f{index}", each) for index, each in enumerate(verdicts)]
    given_rows = [{"id": index, "a": index * 7 % 5, "b": None} for index in range(rows)]
    expected = judged(given_rows, functions)
    for order in permutations(range(len(functions))):
        step, letters, counts = made(functions, order, seed)
        assert (ran(step, given_rows, block), letters.dead) == expected, order
        whole = step.total({f"f{index}": each for index, each in enumerate(counts)})
        assert (whole.rows_in, whole.out, whole.dead) == (rows, len(expected[0]), len(expected[1]))
        assert balance({"u": whole}) == []
        assert Counter(node for _, node, _, _ in letters.dead) == Counter(
            {f"u.f{index}": each.dead for index, each in enumerate(counts) if each.dead}
        )


def small(row: dict[str, int]) -> bool:
    return row["a"] < 3


def divides(row: dict[str, int]) -> bool:
    return 12 % row["a"] == 0


def listed(row: dict[str, int]) -> bool:
    return row["id"] in [1, 2, 3, 5, 8, 13, 21] or not row["b"]


def handed_on(row: dict[str, int]) -> bool:
    return sum(1 for value in row.values() if value is None) < 2


LOOKED_AT = (small, divides, listed, handed_on)


@pytest.mark.parametrize("form", ["rows", "structs", "arrow"])
def test_functions_that_only_look_answer_the_same_to_structs_in_any_order(form: str) -> None:
    rows: list[dict[str, Any]] = [{"id": index, "a": index % 4, "b": None if index % 3 else index} for index in range(50)]
    expected = judged(rows, LOOKED_AT)
    structs = StructForm(SCHEMA)
    for order in permutations(range(len(LOOKED_AT))):
        step, letters, _ = made(LOOKED_AT, order)
        as_structs = (structs, [structs.type(f0=row["id"], f1=row["a"], f2=row["b"]) for row in rows])
        chunk = {
            "rows": Chunk(UnknownOrigin(), range(50), rows=[dict(row) for row in rows]),
            "structs": Chunk(UnknownOrigin(), range(50), structs=as_structs),
            "arrow": Chunk(UnknownOrigin(), range(50), batch=structs.batch(as_structs[1])),
        }[form]
        out = [row["id"] for _, kept in step(chunk) for row in kept.rows]
        assert (out, letters.dead) == expected, order


def test_one_that_changes_its_record_gets_a_dead_letter_that_says_so() -> None:
    def marks(row: Any) -> bool:
        row["a"] = 1
        return True

    step, letters, _ = made([marks, small], [1, 0])
    assert ran(step, [{"id": 1, "a": 2, "b": None}], 8) == []
    ((_, utility, reason, message),) = letters.dead
    assert (utility, reason) == ("u.f0", "raised")
    assert message == "TypeError: the record is read-only: utilities of `order: free` run in any order"


NESTED = parse_schema(
    "id BIGINT, tags ARRAY<STRING>, at STRUCT<x: BIGINT, ys: ARRAY<BIGINT>>, by MAP<STRING, ARRAY<BIGINT>>, all ARRAY<ARRAY<BIGINT>>"
)
WRITES: dict[str, Callable[[Any], Any]] = {
    "sort": lambda row: row["tags"].sort(),
    "append": lambda row: row["tags"].append("x"),
    "item": lambda row: row["tags"].__setitem__(0, "x"),
    "struct": lambda row: row["at"].update(x=1),
    "list in struct": lambda row: row["at"]["ys"].clear(),
    "map": lambda row: row["by"].pop("a"),
    "list in map": lambda row: row["by"]["a"].reverse(),
    "list in list": lambda row: row["all"][0].insert(0, 1),
}


def nested() -> dict[str, Any]:
    return {"id": 1, "tags": ["b", "a"], "at": {"x": 0, "ys": [2, 1]}, "by": {"a": [2, 1]}, "all": [[2, 1], None]}


@pytest.mark.parametrize("way", WRITES)
def test_what_lies_inside_a_record_is_not_to_be_changed_either(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "SCHEMA", NESTED)

    def writes(row: Any) -> bool:
        WRITES[way](row)
        return True

    for order in ([0, 1], [1, 0]):
        step, letters, _ = made([writes, lambda row: row["tags"] == ["b", "a"]], order)
        row = nested()
        assert ran(step, [row], 8) == []
        assert [message for _, _, _, message in letters.dead] == [
            "TypeError: the record is read-only: utilities of `order: free` run in any order"
        ]
        assert row == nested()


def test_what_lies_inside_a_record_is_read_as_lists_and_dicts_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "SCHEMA", NESTED)
    taken: list[Any] = []

    def reads(row: Any) -> bool:
        taken.extend([copy.deepcopy(row["tags"]), copy.copy(row["at"]), pickle.loads(pickle.dumps(row["by"])), list(row["tags"])])
        json.dumps([row["tags"], row["at"], row["by"]])
        tags, at = row["tags"], row["at"]
        return isinstance(tags, list) and sorted(tags) == ["a", "b"] and at == {"x": 0, "ys": [2, 1]} and at["ys"] + [3] == [2, 1, 3]

    step, letters, _ = made([reads], [0])
    empty = {"id": 2, "tags": None, "at": None, "by": None, "all": None}
    assert ran(step, [nested(), empty], 8) == [1]
    assert "NoneType" in letters.dead[0][3]
    assert {type(each) for each in taken[:4]} == {list, dict}


def test_one_that_only_reads_is_not_said_to_have_written() -> None:
    def writes_json(row: Any) -> bool:
        return bool(json.dumps(row))

    step, letters, _ = made([writes_json, small], [1, 0])
    assert ran(step, [{"id": 1, "a": 2, "b": None}], 8) == []
    ((_, _, _, message),) = letters.dead
    assert message == "TypeError: Object of type mappingproxy is not JSON serializable"


class Hung(Watchpoint):
    """As if an earlier try of the task had hung among its records; `at`: record → checksum, where it is known."""

    def __init__(self, name: str, at: dict[int, int]) -> None:
        super().__init__(name, 30.0)
        self.at = at

    def hung(self, start: int, length: int) -> dict[int, int] | None:
        return self.at if any(start <= record < start + length for record in self.at) else None


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_near_a_record_that_hung_tests_go_one_by_one_and_give_the_same(order: tuple[int, ...]) -> None:
    functions = [
        Verdicts("f0", ["keep", "raise", "keep", "drop"]),
        Verdicts("f1", ["keep", "odd", "drop"]),
        Verdicts("f2", ["keep", "none"]),
    ]
    rows = [{"id": index, "a": 1, "b": None} for index in range(24)]
    expected = judged(rows, functions)
    step, letters, _ = made(functions, order)
    for utility in step._utilities:
        object.__setattr__(utility, "hangs", Hung(utility.name, {3: 0, 17: 1}))
    assert (ran(step, rows, 6), letters.dead) == expected


def test_a_record_that_hung_is_dead_by_its_time_limit_unless_another_test_drops_it() -> None:
    rows = [{"id": index, "a": index, "b": None} for index in range(6)]
    step, letters, _ = made([handed_on, small], [0, 1])
    hangs = Hung("f0", {index: checksum_of(MappingProxyType(rows[index])) for index in (1, 5)})
    object.__setattr__(step._utilities[0], "hangs", hangs)
    assert ran(step, rows, 6) == [0, 2]  # 3 to 5 are dropped by the second
    assert [(id_, utility, reason) for id_, utility, reason, _ in letters.dead] == [(1, "u.f0", "time-limit")]


def test_a_test_that_takes_too_long_is_interrupted() -> None:
    def waits(row: dict[str, int]) -> bool:
        while row["id"] == 2:
            pass
        return True

    step, letters, _ = made([small, waits], [0, 1])
    step.chooser.sample = lambda rows: []  # type: ignore[method-assign]
    object.__setattr__(step._utilities[1], "hangs", Watchpoint("f1", 0.2))
    assert ran(step, [{"id": index, "a": 0, "b": None} for index in range(4)], 4) == [0, 1, 3]
    assert [(id_, utility, reason) for id_, utility, reason, _ in letters.dead] == [(2, "u.f1", "time-limit")]
