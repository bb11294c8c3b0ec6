"""Guesses the type of a new column from one value: a wide type, because later values must fit it too."""

from __future__ import annotations

from typing import Any

from scribengin.core.types import Field, Schema, Type
from scribengin.formats.seen import can_name

_STRING, _DOUBLE, _BIGINT = Type("STRING"), Type("DOUBLE"), Type("BIGINT")
_DEEPEST = 32
_MOST_FIELDS = 100
_EXACT, _LONG = 2**53, 2**63


def wide_type(value: Any, depth: int = 0) -> Type | None:
    """Of a value as JSON has it; None where it does not say enough: null, an empty list or object, parts of different kinds, or nested
    deeper than anybody reads. Never a DATE or TIMESTAMP, for the next text may be none, and BIGINT only where DOUBLE would round."""
    match value:
        case bool():
            return Type("BOOLEAN")
        case int():
            return _BIGINT if _EXACT < abs(value) < _LONG else _DOUBLE
        case float():
            return _DOUBLE
        case str():
            return _STRING
        case list() if depth < _DEEPEST:
            part = _common([wide_type(each, depth + 1) for each in value])
            return None if part is None else Type("ARRAY", parts=(part,))
        case dict() if depth < _DEEPEST:
            return _object(value, depth)
    return None


def _object(value: dict[str, Any], depth: int) -> Type | None:
    """Fields without a known type are left out, and dropped like later new fields."""
    types = {name: type_ for name, each in value.items() if (type_ := wide_type(each, depth + 1)) is not None}
    named = {name.lower(): Field(name, type_) for name, type_ in types.items() if len(types) <= _MOST_FIELDS and can_name(name)}
    if named:
        return Type("STRUCT", fields=Schema(tuple(named.values())).fields)
    part = _common(list(types.values()))
    return None if part is None else Type("MAP", parts=(_STRING, part))


def _common(types: list[Type | None]) -> Type | None:
    found = {type_ for type_ in types if type_ is not None}
    if found == {_BIGINT, _DOUBLE}:
        return _DOUBLE
    if len(found) > 1 and all(type_.name == "STRUCT" for type_ in found):
        return _merged([type_ for type_ in types if type_ is not None])
    return found.pop() if len(found) == 1 else None


def _merged(types: list[Type]) -> Type | None:
    """Of objects in a list: the fields of all, those left out that are of different kinds."""
    given: dict[str, list[Type | None]] = {}
    for type_ in types:
        for field in type_.fields:
            given.setdefault(field.name, []).append(field.type)
    found = {name: _common(each) for name, each in given.items()}
    fields = {name.lower(): Field(name, type_) for name, type_ in found.items() if type_ is not None}
    return Type("STRUCT", fields=tuple(fields.values())) if fields else None
