"""Collects the values of a column, and derives the type that fits all of them by the parse contract.

The values of a JSON column come from a decoder without a schema. The type is the narrowest that later values can be expected to fit: whole
numbers are BIGINT whatever their size now, a text is TIMESTAMP only if all texts are.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field
from typing import Any

import msgspec

from scribengin.core.types import Field, Schema, Type, parse_schema
from scribengin.formats.json_types import MisfitError, instant

DISTINCT = 1_000
"""maximum number of distinct values that are counted, for each column"""
_SHOWN = 40
_MAP_KEYS = 50
_DEEPEST = 32
_MAP_SHARE = 0.25
_STRING, _DOUBLE = Type("STRING"), Type("DOUBLE")
_DIGITS = 38
_EXACT = 2**53
_DATE = msgspec.json.Decoder(dt.date)


@dataclass(slots=True)
class ObservedValues:
    """The values of one column, of the items of a list, or of one field of an object."""

    nulls: int = 0
    kinds: dict[str, int] = field(default_factory=dict)
    """boolean, integer, number, text, list, object → number of values"""
    low: Any = None
    high: Any = None
    """the bounds of the numbers, or of the texts if there are no numbers; None if there are neither"""
    dates: int = 0
    times: int = 0
    """texts that are a DATE, and texts that are a TIMESTAMP"""
    distinct: set[Any] = field(default_factory=set)
    examples: list[str] = field(default_factory=list)
    items: ObservedValues | None = None
    fields: dict[str, ObservedValues] = field(default_factory=dict)
    odd: Any = None
    """the first value whose kind differs from that of the first value"""

    @property
    def present(self) -> int:
        """The number of values that are not null."""
        return sum(self.kinds.values())

    def add(self, value: Any, depth: int = 0) -> None:
        """Add one value as JSON has it: None, bool, int, float, str, list or dict. Parts nested deeper than 32 are ignored."""
        if value is None:
            self.nulls += 1
            return
        kind = _KINDS.get(type(value), "other")
        if kind not in self.kinds and self.kinds and self.odd is None:
            self.odd = value
        self.kinds[kind] = self.kinds.get(kind, 0) + 1
        if kind in ("list", "object"):
            if depth < _DEEPEST:
                self._add_parts(value, depth + 1)
        else:
            if kind == "text":
                self._add_text(value)
            self._bound(value)
            if len(self.distinct) <= DISTINCT:
                self.distinct.add(value)
        if len(self.examples) < 3 and (shown := show_value(value)) not in self.examples:
            self.examples.append(shown)

    def _add_parts(self, value: Any, depth: int) -> None:
        if isinstance(value, list):
            self.items = self.items or ObservedValues()
            for item in value:
                self.items.add(item, depth)
            return
        for name, part in value.items():
            if name not in self.fields:
                self.fields[name] = ObservedValues()
            self.fields[name].add(part, depth)

    def _add_text(self, text: str) -> None:
        if text[:1].isdigit() and len(text) <= _SHOWN:
            self.dates += is_date(text)
            self.times += is_time(text)

    def _bound(self, value: Any) -> None:
        if self.low is None or isinstance(value, str) == isinstance(self.low, str):
            self.low = value if self.low is None else min(self.low, value)
            self.high = value if self.high is None else max(self.high, value)

    @property
    def kind(self) -> str:
        """The most frequent kind; `integer` and `number` count together. Empty if all values were null."""
        counts = dict(self.kinds)
        if "number" in counts:
            counts["number"] += counts.pop("integer", 0)
        return max(counts, key=lambda kind: counts[kind]) if counts else ""

    @property
    def others(self) -> int:
        """The number of values that do not fit the type of the most frequent kind."""
        kind = self.kind
        fitting = self.kinds.get(kind, 0) + (self.kinds.get("integer", 0) if kind == "number" else 0)
        return self.present - fitting

    def type(self, path: str, notes: list[str]) -> Type:
        """The type for values of the most frequent kind. Decisions that are not certain are added to `notes`."""
        if self.others:
            found = " and ".join(f"{_PLURAL[kind]} ({count:,})" for kind, count in self.kinds.items())
            whole = (
                ""
                if "." in path or "[" in path
                else f"to keep each value as JSON text, write json: {{text: [{path}]}} and {path} STRING; or "
            )
            notes.append(f"{path} has {found}, and no type fits both; {whole}leave it out of the schema, or declare one kind")
        match self.kind:
            case "":
                notes.append(f"{path} was always null: STRING is a guess")
            case "boolean":
                return Type("BOOLEAN")
            case "integer":
                return self._whole(path, notes)
            case "number":
                if not self.others:
                    self._note_widened(path, notes)
                return _DOUBLE
            case "text":
                return self._text(path, notes)
            case "list":
                if self.items is None or (not self.items.present and not self.items.nulls):
                    notes.append(f"{path} was always empty, or too deep: ARRAY<STRING> is a guess")
                    return Type("ARRAY", parts=(_STRING,))
                return Type("ARRAY", parts=(self.items.type(f"{path}[]", notes),))
            case "object":
                return self._object(path, notes)
        return _STRING

    def _whole(self, path: str, notes: list[str]) -> Type:
        low, high = (bound if isinstance(bound, int) else 0 for bound in (self.low, self.high))
        if low >= -(2**63) and high < 2**63:
            return Type("BIGINT")
        digits = max(len(str(abs(low))), len(str(abs(high))))
        wide = Type("DECIMAL", precision=_DIGITS) if digits <= _DIGITS else _DOUBLE
        notes.append(f"{path} has whole numbers of more than 64 bits, so its type is {wide}, not BIGINT")
        return wide

    def _note_widened(self, path: str, notes: list[str]) -> None:
        whole = self.kinds.get("integer", 0)
        if whole:
            exact = all(isinstance(bound, str) or abs(bound) <= _EXACT for bound in (self.low, self.high))
            loss = "" if exact else "; numbers above 9,007,199,254,740,992 that it would round become dead letters"
            notes.append(
                f"{path} has whole numbers ({whole:,}) and others ({self.kinds['number']:,}), so its type is DOUBLE, not BIGINT{loss}"
            )

    def _text(self, path: str, notes: list[str]) -> Type:
        texts = self.kinds["text"]
        for count, word in ((self.dates, "DATE"), (self.times, "TIMESTAMP")):
            if count == texts:
                return Type(word)
            if count >= 0.9 * texts:
                notes.append(f"{path} would be {word} except for {texts - count:,} of {texts:,} texts, so its type is STRING")
        return _STRING

    def _object(self, path: str, notes: list[str]) -> Type:
        count = self.kinds["object"]
        if not self.fields:
            notes.append(f"{path} was always an empty object, or too deep: MAP<STRING, STRING> is a guess")
            return Type("MAP", parts=(_STRING, _STRING))
        many = len(self.fields) > _MAP_KEYS and sum(each.present for each in self.fields.values()) < _MAP_SHARE * count * len(self.fields)
        if many or not any(map(can_name, self.fields)):
            ignored: list[str] = []
            types = {each.type(path, ignored) for each in self.fields.values() if each.present} or {_STRING}
            if len(types) == 1 and not any(each.others for each in self.fields.values()):
                why = f"has {len(self.fields):,} names, each in few records" if many else "has no names that are allowed in a schema"
                notes.append(f"{path} {why}, so its type is MAP, not STRUCT")
                return Type("MAP", parts=(_STRING, types.pop()))
        schema = schema_of(self.fields, notes, path=f"{path}.")
        return Type("STRUCT", fields=schema.fields) if schema else Type("MAP", parts=(_STRING, _STRING))


def schema_of(columns: dict[str, ObservedValues], notes: list[str], *, path: str = "") -> Schema | None:
    """The columns in the order in which they were seen, every one nullable; None if no column has a name that is allowed in a schema."""
    fields: list[Field] = []
    taken: set[str] = set()
    for name, seen in columns.items():
        if not can_name(name):
            notes.append(f"{path or 'the '}field {name!r} is left out: its name is not allowed in a schema")
        elif name.lower() in taken:
            notes.append(f"{path}{name} is left out: another name differs only in upper and lower case, which SQL does not distinguish")
        else:
            taken.add(name.lower())
            fields.append(Field(name, seen.type(f"{path}{name}", notes)))
    return Schema(tuple(fields)) if fields else None


def can_name(name: str) -> bool:
    """True if the name can be read back from the text of a schema."""
    try:
        schema = Schema((Field(name, _STRING),))
        return name.isprintable() and parse_schema(str(schema)) == schema
    except ValueError:
        return False


def is_time(text: str) -> bool:
    """True if the contract accepts the text as TIMESTAMP."""
    try:
        instant(text)
    except MisfitError:
        return False
    return True


def is_date(text: str) -> bool:
    """True if the contract accepts the text as DATE."""
    try:
        _DATE.decode(msgspec.json.encode(text))
    except (msgspec.MsgspecError, UnicodeEncodeError):
        return False
    return True


def show_value(value: Any) -> str:
    """A text on one line, another value as JSON; cut if it is long."""
    try:
        text = repr(value)[1:-1] if isinstance(value, str) else msgspec.json.encode(value, enc_hook=str).decode().strip('"')
    except RecursionError:
        return "…"
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


_KINDS = {bool: "boolean", int: "integer", float: "number", str: "text", list: "list", dict: "object"}
_PLURAL = {
    "boolean": "booleans",
    "integer": "whole numbers",
    "number": "numbers",
    "text": "texts",
    "list": "lists",
    "object": "objects",
}


# Guesses the type of a new column from one value: a wide type, because later values must fit it too.


_BIGINT = Type("BIGINT")
_MOST_FIELDS = 100
_LONG = 2**63


def wide_type(value: Any, depth: int = 0) -> Type | None:
    """The type of a value as JSON has it. None if the value is not enough: null, an empty list or object, parts of different kinds, or
    parts that are nested too deeply. Never a DATE or TIMESTAMP, since the next text may not be one, and BIGINT only if DOUBLE would
    round."""
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
    """The type of an object. Fields without a known type are left out, and dropped like later new fields."""
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
    """The type of objects in a list: the fields of all of them, without fields of different kinds."""
    given: dict[str, list[Type | None]] = {}
    for type_ in types:
        for each in type_.fields:
            given.setdefault(each.name, []).append(each.type)
    found = {name: _common(kinds) for name, kinds in given.items()}
    fields = {name.lower(): Field(name, type_) for name, type_ in found.items() if type_ is not None}
    return Type("STRUCT", fields=tuple(fields.values())) if fields else None
