"""Hypothesis strategies: schemas, and rows that fit them."""

from __future__ import annotations

import datetime as dt
import struct
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

from scribengin.core.types import INTEGER_BITS, Field, Schema, Type

texts = st.text(st.characters(codec="utf-8"), max_size=12)
names = st.one_of(st.sampled_from(["id", "user", "a.b", "ts", 'q"uote', "ключ", "f0", "a b"]), st.text("abcXYZ_", min_size=1, max_size=5))
flat_types = st.one_of(
    st.sampled_from([Type(n) for n in ("BOOLEAN", "FLOAT", "DOUBLE", "STRING", "BINARY", "DATE", "TIMESTAMP", *INTEGER_BITS)]),
    st.tuples(st.integers(1, 38), st.integers(0, 38)).map(lambda p: Type("DECIMAL", precision=p[0], scale=min(p))),
)
key_types = st.sampled_from([Type("STRING"), Type("BIGINT"), Type("TINYINT"), Type("DATE"), Type("TIMESTAMP")])


def _nested(types: st.SearchStrategy[Type]) -> st.SearchStrategy[Type]:
    return st.one_of(
        types.map(lambda part: Type("ARRAY", parts=(part,))),
        st.tuples(key_types, types).map(lambda parts: Type("MAP", parts=parts)),
        fields(types, max_size=3).map(lambda found: Type("STRUCT", fields=found)),
    )


def fields(types: st.SearchStrategy[Type], *, max_size: int) -> st.SearchStrategy[tuple[Field, ...]]:
    one = st.builds(Field, names, types, st.booleans())
    return st.lists(one, min_size=1, max_size=max_size, unique_by=lambda field: field.name).map(tuple)


all_types = st.recursive(flat_types, _nested, max_leaves=4)
schemas = fields(all_types, max_size=4).map(Schema)
flat_schemas = fields(flat_types, max_size=5).map(Schema)


def values(type_: Type) -> st.SearchStrategy[Any]:
    """Values as docs/flow-file.md gives them to Python; floats are finite."""
    if type_.name in INTEGER_BITS:
        half = 1 << (INTEGER_BITS[type_.name] - 1)
        return st.integers(-half, half - 1)
    match type_.name:
        case "BOOLEAN":
            return st.booleans()
        case "FLOAT":
            return st.floats(width=32, allow_nan=False, allow_infinity=False).map(_plain_zero)
        case "DOUBLE":
            return st.floats(allow_nan=False, allow_infinity=False).map(_plain_zero)
        case "STRING":
            return texts
        case "BINARY":
            return st.binary(max_size=8)
        case "DATE":
            return st.dates()
        case "TIMESTAMP":
            return st.datetimes(timezones=st.just(dt.UTC)).map(lambda moment: moment.replace(fold=0))  # repr would show it
        case "DECIMAL":
            high = 10**type_.precision - 1
            return st.integers(-high, high).map(lambda n: _decimal(n, type_.scale))
        case "ARRAY":
            return st.lists(st.none() | values(type_.parts[0]), max_size=3)
        case "MAP":
            return st.dictionaries(values(type_.parts[0]), st.none() | values(type_.parts[1]), max_size=3)
    return rows(type_.fields)


def rows(found: tuple[Field, ...]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({f.name: st.none() | values(f.type) if f.nullable else values(f.type) for f in found})


def typed(schemas_: st.SearchStrategy[Schema], *, max_size: int = 6) -> st.SearchStrategy[tuple[Schema, list[dict[str, Any]]]]:
    return schemas_.flatmap(lambda schema: st.tuples(st.just(schema), st.lists(rows(schema.fields), max_size=max_size)))


def _decimal(digits: int, scale: int) -> Decimal:
    return Decimal((int(digits < 0), tuple(map(int, str(abs(digits)))), -scale))


def _plain_zero(value: float) -> float:
    return value or 0.0  # JSON's -0 has no sign after decoding


def float32(value: float) -> float:
    found: float = struct.unpack("<f", struct.pack("<f", value))[0]
    return found
