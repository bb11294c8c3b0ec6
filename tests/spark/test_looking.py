"""Functions that only look at columns get Structs and answer as they do to dicts; all others are left alone."""

from __future__ import annotations

import importlib
import sys
import traceback
from typing import TYPE_CHECKING, Any

import pytest

from scribengin.core.types import parse_schema
from scribengin.formats.structs import StructForm
from scribengin.spark.predicate_pushdown import compile_predicate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from types import ModuleType

SCHEMA = parse_schema("id BIGINT, text STRING, tags ARRAY<STRING>")
ROWS: list[dict[str, Any]] = [
    {"id": 7, "text": "seven #a #b", "tags": ["x", "y"]},
    {"id": None, "text": None, "tags": None},
    {"id": -1, "text": "", "tags": []},
]
LOOKS = '''
import re
from scribengin import record, to

HASHTAG = re.compile(r"#\\w+")

def simple(row: dict) -> bool:
    return row["id"] is not None and row["id"] > 5

@record
def marked(row):
    """Has a docstring."""
    text = row.get("text") or ""
    return "#a" in text

def several(tweet):
    return [{"id": tweet["id"], "tag": tag} for tag in HASHTAG.findall(tweet.get("text", None) or "")]

def generator(row):
    for tag in row["tags"] or ():
        yield {"tag": tag, "id": row["id"]}

def inner(row):
    def longest(text):
        return max([text, row["text"] or ""], key=len)
    return {"text": longest("abc"), "few": (lambda: row["id"])()}

def branches(row):
    return to("big", {"id": row["id"]}) if (row["id"] or 0) > 5 else None

def default(row, limit=5):
    return row["id"] > limit

def raises(row):
    if row["id"] is None:
        return False
    return row["id"] > 5 and len(row["tags"][17]) > 3
'''
NOT_LOOKS = """
import functools
from scribengin import record

def hands_on(row):
    return row

def changes(row):
    row["id"] = 1
    return {"id": row["id"]}

def adds(row):
    row["id"] += 1
    return True

def forgets(row):
    del row["id"]
    return True

def unknown(row):
    return row["nope"]

def by_name(row):
    name = "id"
    return row[name]

def aliased(row):
    other = row
    return other["id"]

def spreads(row):
    return {**row, "id": 1}

def asks_all(row):
    return len(row) == 3

def rebinds(row):
    for row in [{"id": 1}]:
        pass
    return row["id"]

def hidden(row):
    return [row["id"] for row in [{"id": 2}]]

def hidden_in_lambda(row):
    return (lambda row: row["id"])({"id": 2})

def caught(row):
    try:
        return row["id"] > "a"
    except TypeError as row:
        return False

def sees_locals(row):
    return bool(locals()) and row["id"]

def pops(row):
    return row.pop("id")

def falls_back(row):
    return row.get("nope", row["id"])

def two(row, other):
    return row["id"]

def any_number(*row):
    return row[0]["id"]

def wrap(function):
    @functools.wraps(function)
    def wrapped(row):
        return function(row)
    return wrapped

@wrap
def decorated(row):
    return row["id"]

def make(limit):
    def closed(row):
        return row["id"] > limit
    return closed

closure = make(5)

class Step:
    def __call__(self, row):
        return row["id"] == 7

step = Step()
built_in = len
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], ModuleType]]:
    monkeypatch.syspath_prepend(str(tmp_path))

    def load(text: str) -> ModuleType:
        (tmp_path / "user_looks.py").write_text(text)
        importlib.invalidate_caches()
        return importlib.import_module("user_looks")

    yield load
    sys.modules.pop("user_looks", None)


def answer(function: Callable[[Any], Any], row: Any) -> Any:
    """What comes of one call: a value, or the error with its last line."""
    try:
        found = function(row)
        return list(found) if hasattr(found, "__next__") else found
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        return type(error), str(error), frame.filename, frame.lineno


def functions(text: str) -> list[str]:
    return [line.partition("def ")[2].partition("(")[0] for line in text.splitlines() if line.startswith("def ")]


def test_a_function_that_only_looks_answers_the_same_to_structs(module: Callable[[str], ModuleType]) -> None:
    loaded = module(LOOKS)
    structs = [StructForm(SCHEMA).type(f0=row["id"], f1=row["text"], f2=row["tags"]) for row in ROWS]
    for name in functions(LOOKS):
        function = getattr(loaded, name)
        looking = compile_predicate(function, SCHEMA)
        if name == "default":
            assert looking is None, "two parameters"
            continue
        assert looking is not None, name
        for row, struct in zip(ROWS, structs, strict=True):
            assert answer(looking.one, struct) == answer(function, dict(row)), name


TESTS = '''
LIMIT = 5
WORDS = {"a", ""}
ODD = [object()]

def constant(row):
    """Has a docstring."""
    return row["id"] is not None and row["id"] > LIMIT

def words(row):
    return row["text"] in WORDS or not row["tags"]

def chained(row):
    return -5 < row["id"] < 7.5

def inside(row):
    return "#a" in row["text"]

def listed(tweet):
    return tweet.get("id") in (7, -1, None)
'''
NO_TESTS = """
ODD = [object()]
LIMITS = {"id": 5}

def value(row):
    return row["text"] and row["id"] > 5

def called(row):
    return len(row["text"]) > 5

def two_lines(row):
    wanted = row["id"]
    return wanted == 5

def unknown(row):
    return row["id"] in ODD

def looked_up(row):
    return row["id"] > LIMITS["id"]

def nothing(row):
    return
"""


def test_a_plain_test_is_one_loop_over_many_records(module: Callable[[str], ModuleType]) -> None:
    loaded = module(TESTS)
    structs = [StructForm(SCHEMA).type(f0=row["id"], f1=row["text"], f2=row["tags"]) for row in ROWS]
    for name in functions(TESTS):
        looking = compile_predicate(getattr(loaded, name), SCHEMA)
        assert looking is not None, name
        assert looking.many is not None, name
        one_by_one = [answer(getattr(loaded, name), dict(row)) for row in ROWS]
        if all(isinstance(each, bool) for each in one_by_one):
            assert looking.many(structs) == one_by_one, name
        else:
            with pytest.raises(TypeError):
                looking.many(structs)


def test_what_is_more_than_a_test_is_asked_record_by_record(module: Callable[[str], ModuleType]) -> None:
    loaded = module(NO_TESTS)
    for name in functions(NO_TESTS):
        looking = compile_predicate(getattr(loaded, name), SCHEMA)
        assert looking is not None, name
        assert looking.many is None, name


def test_whatever_does_more_than_look_is_left_alone(module: Callable[[str], ModuleType]) -> None:
    loaded = module(NOT_LOOKS)
    names = [name for name in functions(NOT_LOOKS) if name not in ("wrap", "make")]
    for name in [*names, "closure", "step", "built_in"]:
        assert compile_predicate(getattr(loaded, name), SCHEMA) is None, name


def test_a_source_that_is_not_what_was_loaded_is_not_believed(module: Callable[[str], ModuleType], tmp_path: Path) -> None:
    loaded = module("def late(row):\n    return row['id'] > 5\n")
    (tmp_path / "user_looks.py").write_text("def late(row):\n    return row['id'] > 6\n")
    assert compile_predicate(loaded.late, SCHEMA) is None


def test_state_of_the_module_is_shared(module: Callable[[str], ModuleType]) -> None:
    loaded = module("seen = []\n\ndef count(row):\n    seen.append(row['id'])\n    return True\n")
    looking = compile_predicate(loaded.count, SCHEMA)
    assert looking is not None
    looking.one(StructForm(SCHEMA).type(f0=3))
    loaded.count({"id": 4})
    assert loaded.seen == [3, 4]
