"""JSON that is not an object a line: which records it is cut into, where they stand, and what is told of files that cannot be cut."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from scribengin.connectors.files.json_splitting import JsonCutter, misshapen, shape_of
from scribengin.connectors.files.options import list_keys
from scribengin.connectors.files.splitting import Damage
from scribengin.formats.blocks import DamageBlock

BAD = ("malformed", "truncated", "missing", "too-long", "corrupt")


def cut(data: bytes, keys: tuple[str, ...] | None, size: int = 1 << 18, max_record: int = 1 << 20) -> list[Any]:
    """(offset, line, value) of each record, and the reason of each damage; of chunks of that size."""
    found: list[Any] = []
    chunks = (data[at : at + size] for at in range(0, len(data), size))
    for block in JsonCutter("f", max_record, keys).cut(chunks):
        if isinstance(block, DamageBlock):
            found.append(block.reason)
            continue
        lines = block.lines()
        assert len(lines) == len(block)
        for ordinal, line in enumerate(lines):
            place = block.place(ordinal)
            payload = block.payload(ordinal)
            assert data[place.offset : place.offset + len(payload)] == payload
            assert json.loads(payload) == json.loads(line)
            assert place.line == 1 + data.count(b"\n", 0, place.offset)
            found.append(json.loads(payload))
    return found


RECORDS = [
    {"id": 1, "t": 'a "quoted\\" {[}]', "n": {"b": [1, [2], {}]}},
    {"id": 2, "t": "\\\\", "e": [], "u": "ä\U0001f600"},
    {"id": 3, "t": "line\nend", "x": None},
    {},
]
KEYS = [(), ("Records",), ("a", "b c")]


def document(records: list[Any], keys: tuple[str, ...], indent: int | None) -> bytes:
    value: Any = records
    for key in reversed(keys):
        value = {"before": [[1, {"Records": [9]}], "x]"], key: value, "behind": {"a": {"b c": [7]}, "z": "}"}}
    return json.dumps(value, indent=indent).encode()


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 1 << 18])
@pytest.mark.parametrize("keys", KEYS)
def test_items_of_a_list_are_records_however_the_bytes_come(keys: tuple[str, ...], size: int, indent: int | None) -> None:
    data = document(RECORDS, keys, indent)
    assert cut(data, keys, size) == RECORDS
    assert cut(b"\xef\xbb\xbf" + data if size > 3 else data, keys, size)[:1] == RECORDS[:1]
    assert cut(data + b"\n" + data, keys, size) == RECORDS * 2


@pytest.mark.parametrize("size", [1, 2, 5, 64, 1 << 18])
@pytest.mark.parametrize("between", [b"", b"\n", b" \r\n\t"])
def test_values_behind_one_another_are_records(size: int, between: bytes) -> None:
    for indent in (None, 2):
        data = between.join(json.dumps(record, indent=indent).encode() for record in RECORDS) + between
        assert cut(data, None, size) == RECORDS


def test_random_documents_agree_with_python() -> None:
    chance = random.Random(7)

    def value(depth: int) -> Any:
        kind = chance.randrange(6 if depth else 4)
        texts = ['"', "\\", "{", "]", ",", ":", "x", "\n", "é"]
        return [
            lambda: "".join(chance.choices(texts, k=chance.randrange(6))),
            lambda: chance.randrange(-9, 99),
            lambda: None,
            lambda: 1.5,
            lambda: [value(depth - 1) for _ in range(chance.randrange(4))],
            lambda: {"".join(chance.choices(texts, k=2)): value(depth - 1) for _ in range(chance.randrange(4))},
        ][kind]()

    for _ in range(200):
        records = [{"v": value(3)} for _ in range(chance.randrange(5))]
        keys = chance.choice(KEYS)
        data = document(records, keys, chance.choice([None, 1]))
        assert cut(data, keys, chance.choice([1, 3, 10, 1000])) == records


@pytest.mark.parametrize(
    ("data", "keys", "found"),
    [
        (b"", (), []),
        (b"  \n", (), []),
        (b"[]", (), []),
        (b"[ ]\n[{}]", (), [{}]),
        (b'[{"a":1},{"a":2}', (), [{"a": 1}, "truncated"]),
        (b'[{"a":1},{"a"', (), [{"a": 1}, "truncated"]),
        (b'[{"a":1}]}', (), [{"a": 1}, "malformed"]),
        (b'[{"a":1}] x', (), [{"a": 1}, "malformed"]),
        (b'x [{"a":1}]', (), ["malformed"]),
        (b'{"a":1}', (), ["malformed"]),
        (b"hello", (), ["malformed"]),
        (b'{"Records":[{"a":1}]}{"other":[1]}', ("Records",), [{"a": 1}, "missing"]),
        (b'{"Records":{"a":[1]}}', ("Records",), ["missing"]),
        (b'{"Records":null}', ("Records",), ["missing"]),
        (b'{"x":{"Records":[1]}}', ("Records",), ["missing"]),
        (b'[{"Records":[1]}]', ("Records",), ["malformed"]),
        (b'{"a":1}{"a":', None, [{"a": 1}, "truncated"]),
        (b'{"a":"x', None, ["truncated"]),
        (b'{"a":1}}', None, [{"a": 1}, "malformed"]),
    ],
)
def test_what_cannot_be_cut_is_one_letter_for_the_rest(data: bytes, keys: tuple[str, ...] | None, found: list[Any]) -> None:
    for size in (1, 4, 1 << 18):
        assert cut(data, keys, size) == found


def test_a_record_that_is_no_json_costs_itself_alone() -> None:
    blocks = list(JsonCutter("f", 1 << 20, ()).cut([b'[{"a":1}, {"a" 2}, {"a":3}]']))
    assert [block.payload(ordinal) for block in blocks for ordinal in range(len(block))] == [b'{"a":1}', b'{"a" 2}', b'{"a":3}']


@pytest.mark.parametrize("keys", [(), None])
@pytest.mark.parametrize("size", [100, 1000, 1 << 18])
def test_a_record_that_is_too_long_is_a_letter_and_the_next_is_read(keys: tuple[str, ...] | None, size: int) -> None:
    texts = [json.dumps({"a": "x" * length}) for length in (10, 9000, 20, 5000, 4000)]
    data = ("[" + ", ".join(texts) + "]" if keys is not None else "\n".join(texts)).encode()
    found = cut(data, keys, size, max_record=2048)
    assert [each if isinstance(each, str) else len(each["a"]) for each in found] == [10, "too-long", 20, "too-long", "too-long"]


def test_damage_of_the_bytes_ends_a_file() -> None:
    blocks = list(JsonCutter("f", 1 << 20, ()).cut(iter([b'[{"a":1},{"a"', Damage("corrupt", "broken")])))
    assert [len(block) for block in blocks] == [1, 1]
    assert isinstance(blocks[1], DamageBlock)
    assert (blocks[1].reason, blocks[1].offset, blocks[1].head) == ("corrupt", 9, b'{"a"')


def test_memory_is_bounded_by_a_record() -> None:
    cutter = JsonCutter("f", 4096, ("Records",))

    def chunks() -> Any:
        yield b'{"skipped": "'
        for _ in range(100):
            yield b"x" * 65536
        yield b'", "Records": ['
        for index in range(2000):
            yield b'{"id": %d, "t": "%s"},' % (index, b"y" * 100)
            assert len(cutter._held) < 100_000
        yield b"{}]}"

    assert sum(map(len, cutter.cut(chunks()))) == 2001


@pytest.mark.parametrize(
    ("path", "keys"), [("$[*]", ()), ("$.Records[*]", ("Records",)), ("$.a.b-c[*]", ("a", "b-c")), ("$['x y'].z[*]", ("x y", "z"))]
)
def test_paths(path: str, keys: tuple[str, ...]) -> None:
    assert list_keys(path) == keys


@pytest.mark.parametrize("path", ["Records", "$.Records", "$..a[*]", "$.a[0]", "$.a[*].b", ""])
def test_other_paths_are_refused(path: str) -> None:
    with pytest.raises(ValueError, match=r"\$\.Records\[\*\]"):
        list_keys(path)


@pytest.mark.parametrize(
    ("head", "shape", "says"),
    [
        (b'{"a":1}\n{"a":2}\n', "lines", ""),
        (b'\n {"a":1}\n', "lines", ""),
        (b"", "lines", ""),
        (b"not json\n", "lines", ""),
        (b'[{"a":1},{"a":2}]\n', "array", "shape: array"),
        (b'[\n  {"a":1}\n]\n', "array", "shape: array"),
        (b'[{"a":1},\n {"a":2}]', "array", "shape: array"),
        (b'[1]\n{"a":1}\n', "array", ""),
        (b'{\n "a": 1\n}\n{\n "a": 2\n}\n', "concatenated", "shape: concatenated"),
        (b'{"Records": [\n {"a":1}\n]}\n', "concatenated", 'records: "$.Records[*]"'),
        (b'{"a":1}{"a":2}', "concatenated", ""),
        (b'{"a": 1, "b": "cut\n{"a":2}\n{"a":3}\n', "lines", ""),
        (b'{"a": "' + b"x" * (1 << 18), "lines", ""),  # the first of some lines may be longer than what is looked at
    ],
)
def test_what_a_file_is_by_how_it_begins(head: bytes, shape: str, says: str) -> None:
    assert shape_of(head) == shape
    assert (says in misshapen(head)) if says else misshapen(head) == ""
