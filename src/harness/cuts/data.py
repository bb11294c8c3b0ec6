"""Data for random flows: every type of column, nulls, text in many scripts, lines that are not records, duplicate rows."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import random
    from pathlib import Path

EVENTS = (
    ("id", "BIGINT NOT NULL"),
    ("grp", "STRING"),
    ("n", "INT"),
    ("x", "DOUBLE"),
    ("cost", "DECIMAL(12, 3)"),
    ("blob", "BINARY"),
    ("day", "DATE"),
    ("ok", "BOOLEAN"),
    ("body", "STRING"),
    ("tags", "ARRAY<STRING>"),
    ("marks", "MAP<STRING, BIGINT>"),
    ("nested", "STRUCT<a: INT, b: STRING>"),
    ("ts", "TIMESTAMP NOT NULL"),
)
LABELS = (("id", "BIGINT NOT NULL"), ("at", "TIMESTAMP NOT NULL"), ("label", "STRING"))
FIRST_CLOSER = 1_000_000
FAR = datetime(2026, 3, 1, tzinfo=UTC)
"""the time of the first closers; no other row is later"""
_BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
_GROUPS = ("a", "b", "ü", "größer", "ячейка", "空", "a\tb", "", None)
_CLOSERS_EACH = 2 * 3 * 5 * 7


def write_data(folder: Path, sources: dict[str, dict[str, Any]], rng: random.Random, *, levels: int = 1) -> None:
    """Write the files of each source, the same number for each. The last `levels` files contain closers, each with later times than the
    file before."""
    files = rng.randint(1, 2)
    for id_ in sources:
        home = folder / "data" / id_
        home.mkdir(parents=True)
        if id_ == "words":
            words = [{"grp": group, "said": f"<{group}>"} for group in _GROUPS[:5] if group is not None]
            _write(home / "words.jsonl", [json.dumps(word) for word in words])
            continue
        make = _label if id_ == "labels" else _event
        for number in range(files):
            lines = [_line(make(_BEGIN, key, rng), rng) for key in _keys(number, rng)]
            _write(home / f"part-{number}.jsonl", lines)
        for level in range(levels):
            keys = range(FIRST_CLOSER + level * _CLOSERS_EACH, FIRST_CLOSER + (level + 1) * _CLOSERS_EACH)
            lines = [json.dumps(make(FAR + level * timedelta(days=30), key, None)) for key in keys]
            _write(home / f"part-{files + level}.jsonl", lines)


def _write(path: Path, lines: list[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def _keys(number: int, rng: random.Random) -> list[int]:
    """The ids of a file's rows; some are duplicates, in the file or in other files."""
    keys = [number * 40 + nth for nth in range(rng.randint(5, 60))]
    return keys + rng.sample(keys, len(keys) // 8)


def _line(row: dict[str, Any], rng: random.Random) -> str:
    """The record as a line; sometimes a line that is not a record."""
    text = json.dumps(row, ensure_ascii=rng.random() < 0.5)
    fate = rng.random()
    if fate < 0.02:
        return text[: len(text) // 2]
    if fate < 0.03:
        return json.dumps(row | {"id": "none"})
    return "[]" if fate < 0.035 else text


def _label(begin: datetime, key: int, rng: random.Random | None) -> dict[str, Any]:  # noqa: ARG001
    return {"id": key, "at": _moment(begin, key), "label": f"label {key} ä" if key % 4 else None}


def _event(begin: datetime, key: int, rng: random.Random | None) -> dict[str, Any]:  # noqa: ARG001
    """An event whose contents depend only on its key: rows with the same id are equal."""
    closer = key >= FIRST_CLOSER
    body = json.dumps({"k": key, "word": f"w{key % 5}"}) if key % 11 or closer else '{"k": "no number"}' if key % 2 else "{"
    row: dict[str, Any] = {
        "id": key,
        "grp": _GROUPS[key % (5 if closer else len(_GROUPS))] if not closer or key % 5 < 4 else "a",
        "n": key % 101 - 50,
        "x": (key % 97) / 8,
        "cost": key % 1000 + key % 8 / 8,
        "blob": base64.b64encode(key.to_bytes(4, "big")).decode(),
        "day": (_BEGIN + timedelta(days=key % 60)).date().isoformat(),
        "ok": key % 3 > 0,
        "body": body,
        "tags": [f"t{number}" for number in range(key % 4)],
        "marks": {f"m{key % 3}": key},
        "nested": {"a": key % 7, "b": None if key % 2 else "ß"},
        "ts": _moment(begin, key),
    }
    if not closer:
        for nth, name in enumerate(("n", "cost", "blob", "day", "ok", "body", "tags", "marks", "nested", "x")):
            if (key + nth) % 13 == 0:
                row[name] = None
    return row


def _moment(begin: datetime, key: int) -> str:
    """A time within three hours of the begin."""
    return (begin + timedelta(seconds=key * 7919 % 10_800, microseconds=key % 1000)).isoformat()


STEPS = '''"""Steps of random flows: none depends on the order of rows, and all let closers through."""

import pyarrow.compute as pc

from scribengin import batch, record, to

FAR = 1_000_000


@record
def changed(row):
    row["n"] = None if row["n"] is None else row["n"] * 2 % 1000
    return row


@record
def doubled(row):
    if row["id"] % 3 == 0:
        return [row, row | {"n": 7}]
    return row


@record
def dropped(row):
    return row["id"] % 5 != 2 or row["id"] >= FAR


@record
def picky(row):
    if row["id"] % 6 == 4 and row["id"] < FAR:
        raise ValueError(f"no {row['id']} with n {row['n']}")
    return row


@record
def sorted_out(row):
    return to("left" if row["id"] % 7 < 3 else "right", row)


@batch
def halved(rows):
    return rows.filter(pc.or_(pc.equal(pc.bit_wise_and(rows["id"], 2), 0), pc.greater_equal(rows["id"], FAR)))
'''
