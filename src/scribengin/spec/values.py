"""Readers of single values, one for each kind that `keys` and `core.options` declare.

They return None if they reported a Problem. `what` is the name of the value in messages, `example` a valid value for the remedy.
"""

from __future__ import annotations

import re
from dataclasses import replace
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, assert_never

from scribengin.core.problems import did_you_mean, suggestion
from scribengin.core.types import PRIMITIVES, Schema, SchemaSyntaxError, parse_schema
from scribengin.core.units import parse_bytes, parse_duration_s, show_bound
from scribengin.spec.foreign_terms import UNITS
from scribengin.spec.model import RecordBound, Watermark
from scribengin.spec.reader import NAME
from scribengin.spec.yaml_document import Mapping, Node, Scalar, Sequence, kind_of, shorten

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from scribengin.core.options import Option
    from scribengin.core.secret import Secret
    from scribengin.spec.reader import DocumentReader

_NUMBER = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(.*?)\s*\Z", re.DOTALL)
_WATERMARK = re.compile(r"\s*(`[^`]+`|\S+)\s+(\S.*?)\s*\Z", re.DOTALL)
_AS = re.compile(r"(.*\S)\s+AS\s+(`[^`]+`|\w+)\s*\Z", re.DOTALL | re.IGNORECASE)
_COLUMN = re.compile(r"(?:[A-Za-z_]\w*\.)*(`[^`]+`|[A-Za-z_]\w*)\Z")

_UNKNOWN_TYPE = re.compile(r'unknown type "(.+)"\Z')
_TYPES = (*PRIMITIVES, "DECIMAL", "ARRAY", "MAP", "STRUCT")

Pairs = tuple[tuple[str, str], ...]
_N = TypeVar("_N", float, int)


class Bounds(NamedTuple):
    """The bounds of a number, inclusive; `kind` determines the unit in which they are shown."""

    kind: str
    low: float | None
    high: float | None = None


_LABEL = 63
_PERCENT = re.compile(r"(\d+(?:\.\d+)?)\s*%\Z")


def bounds_of(option: Option) -> Bounds:
    """The bounds of an option."""
    return Bounds(option.kind, option.low, option.high)


def read_option(reader: DocumentReader, option: Option, node: Node, what: str) -> Any:
    """Read the typed value of a connector's option; None if a Problem was reported."""
    value = _read_option(reader, option, node, what)
    if value is None or option.check is None:
        return value
    fault = option.check(value)
    if fault is not None:
        reader.error("bad-value", node, f"{what} {fault[0]}", fault[1])
    return value if fault is None else None


def _read_option(reader: DocumentReader, option: Option, node: Node, what: str) -> Any:
    match option.kind:
        case "text" | "path" if option.secret:
            return reader.secret(node, what, option.example)
        case "text" if option.required:
            return reader.text(node, what, option.example or "a text")
        case "text":
            return reader.raw_text(node, what, option.example)
        case "path":
            return _read_path(reader, node, what, option.example or "data")
        case "int":
            return read_int(reader, node, what, option.example or "100", bounds_of(option))
        case "float":
            return read_float(reader, node, what, option.example or "0.5", bounds_of(option))
        case "bool":
            return read_bool(reader, node, what)
        case "duration":
            return read_duration(reader, node, what, option.example or "30s", bounds_of(option))
        case "bytes":
            return read_bytes(reader, node, what, option.example or "64MiB", bounds_of(option))
        case "choice":
            return reader.choice(node, what, option.choices, option.example)
        case "list" if option.keys:
            return _read_texts_and_sections(reader, option, node, what)
        case "list":
            return read_texts(reader, node, what, option.example or "[a, b]")
        case "words":
            return read_text_or_texts(reader, node, what, option.example or "[a, b]")
        case "section":
            return _read_section(reader, option, node, what)
        case "schema":
            return read_schema(reader, node, what)
        case "map":
            return read_texts_by_name(reader, node, what, option.example or "{name: value}", secret=option.secret)
        case "columns":
            return _read_columns(reader, option, node, what)
        case _:
            assert_never(option.kind)


def _read_path(reader: DocumentReader, node: Node, what: str, example: str) -> str | None:
    """Read a path that is valid on this machine; the file system is not accessed."""
    text = reader.text(node, what, example)
    if text is None:
        return None
    if "\0" in text:
        reader.error("bad-value", node, f"{what} contains a zero byte, which is not allowed in a path", f"write a path, such as {example}")
        return None
    try:
        Path(text).expanduser()
    except RuntimeError:
        user = Path(text).parts[0]
        remedy = f"write the full path of the folder, or ./{text} if a folder has that name"
        reader.error("bad-value", node, f"{what} begins with {shorten(user)}, and this machine does not have that user", remedy)
        return None
    return text


def _read_section(reader: DocumentReader, option: Option, node: Node, what: str) -> dict[str, Any] | None:
    """Read a mapping with the option's own keys; missing keys get their defaults elsewhere."""
    mapping = reader.mapping(node, what, option.example)
    if mapping is None:
        return None
    before, values = reader.errors, dict[str, Any]()
    names = [key.name for key in option.keys]
    for name, (key_node, value) in mapping.entries.items():
        key = option.key(name)
        if key is not None:
            values[name] = read_option(reader, key, value, f'"{name}" in {what}')
        elif not comma_trouble(reader, mapping, key_node, value, what):
            remedy = suggestion(name, names, "its keys are")
            reader.error("unknown-key", key_node, f'{what} has the unknown key "{name}"', remedy)
    for key in option.keys:
        if key.required and key.name not in mapping.entries:
            reader.error("missing-key", mapping, f'{what} has no "{key.name}"', f"add {key.name}: {key.example}")
    return values if reader.errors == before else None


def _read_columns(reader: DocumentReader, option: Option, node: Node, what: str) -> dict[str, str] | None:
    """Read column → one of the option's choices, or a type if it has no choices; the type is empty for a column of a list."""
    if not isinstance(node, Mapping):
        names = read_texts(reader, node, what, option.example)
        read = None if names is None else {name: name if option.choices else "" for name in names}
    else:
        texts = read_texts_by_name(reader, node, what, option.example, secret=False)
        read = None if texts is None else {name: str(text) for name, text in texts.items()}
    before = reader.errors
    for column, word in (read or {}).items():
        at = node.entries[column][1] if isinstance(node, Mapping) else node
        if option.choices and word not in option.choices:
            remedy = suggestion(word, option.choices, "it has")
            if not isinstance(node, Mapping):
                remedy += f"; to give a column another name: {option.name}: {{COLUMN: {option.choices[0]}}}"
            reader.error("bad-choice", at, f'{what} has no "{word}"', remedy)
        elif not option.choices and word:
            try:
                parse_schema(f"x {word}")
            except SchemaSyntaxError as error:
                message, remedy = _schema_fault(error)
                reader.error("schema-syntax", at, f'the type of "{column}" in {what}: {message}', remedy or f"such as {option.example}")
    return read if reader.errors == before else None


def _read_texts_and_sections(reader: DocumentReader, option: Option, node: Node, what: str) -> tuple[Any, ...] | None:
    """Read a list of texts and sections, or one of them; no text twice."""
    items = [node] if isinstance(node, Mapping) else reader.items(node, what, option.example)
    if items is None:
        return None
    sections = {index: item for index, item in enumerate(items) if isinstance(item, Mapping)}
    texts: list[Node] = [item for item in items if not isinstance(item, Mapping)]
    read = [_read_section(reader, option, item, f"item {index + 1} of {what}") for index, item in sections.items()]
    words = read_texts(reader, replace(node, items=texts), what, option.example) if isinstance(node, Sequence) and sections else None
    if not sections:
        return read_texts(reader, node, what, option.example)
    if any(each is None for each in read) or (texts and words is None):
        return None
    plain, whole = iter(words or ()), iter(read)
    return tuple(next(whole) if index in sections else next(plain) for index in range(len(items)))


def read_int(reader: DocumentReader, node: Node, what: str, example: str, bounds: Bounds) -> int | None:
    """Read a whole number within the bounds."""
    value = reader.typed(node, what, example)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        quoted = isinstance(node, Scalar) and node.style
        whole = _whole(node.value) if isinstance(node, Scalar) else None
        remedy = f"write a number, such as {example}" if whole is None else f"write {whole}{' without quotes' if quoted else ''}"
        reader.error("bad-value", node, f"{what} is {kind_of(node)}, not a whole number", remedy)
        return None
    return value if _within(reader, node, what, value, bounds) else None


def read_int_or_word(
    reader: DocumentReader, node: Node, what: str, example: str, bounds: Bounds, words: Collection[str]
) -> int | str | None:
    """Read a whole number within the bounds, or one of the words."""
    value = reader.typed(node, what, example)
    if value is None or value in words:
        return None if value is None else str(value)
    if not isinstance(value, str) or _whole(value) is not None:
        return read_int(reader, node, what, example, bounds)
    either = f"write a number, such as {example}, or {' or '.join(words)}"
    message = f"{what} is {shorten(value)}, not a whole number or {' or '.join(words)}"
    reader.error("bad-value", node, message, did_you_mean(value, words) or either)
    return None


def read_bool(reader: DocumentReader, node: Node, what: str) -> bool | None:
    """Read true or false."""
    value = reader.typed(node, what, "true")
    if value is None or isinstance(value, bool):
        return value
    meant = {"yes": "true", "on": "true", "y": "true", "no": "false", "off": "false", "n": "false"}.get(str(value).lower(), "")
    remedy = f'did you mean "{meant}"?' if meant else "write true or false"
    reader.error("bad-value", node, f"{what} is {kind_of(node)}, not true or false", remedy)
    return None


def read_duration(reader: DocumentReader, node: Node, what: str, example: str, bounds: Bounds) -> float | None:
    """Read a duration, in seconds."""
    text = reader.text(node, what, example)
    seconds = None if text is None else _with_unit(reader, node, 0, text, what, parse_duration_s)
    return seconds if seconds is not None and _within(reader, node, what, seconds, bounds) else None


def read_float(reader: DocumentReader, node: Node, what: str, example: str, bounds: Bounds) -> float | None:
    """Read a finite number within the bounds."""
    value = reader.typed(node, what, example)
    if value is None:
        return None
    if isinstance(value, (bool, str)) or not isfinite(value):
        reader.error("bad-value", node, f"{what} is {kind_of(node)}, not a number", f"write {example}")
        return None
    return float(value) if _within(reader, node, what, value, bounds) else None


def read_bytes(reader: DocumentReader, node: Node, what: str, example: str, bounds: Bounds) -> int | None:
    """Read a size, in bytes."""
    text = reader.text(node, what, example)
    count = None if text is None else _with_unit(reader, node, 0, text, what, parse_bytes)
    return count if count is not None and _within(reader, node, what, count, bounds) else None


def read_bound(reader: DocumentReader, node: Node, what: str, example: str) -> RecordBound | None:
    """Read `1%`, or a whole number."""
    text = reader.text(node, what, example)
    if text is None:
        return None
    if text.strip().isdecimal():
        return RecordBound(records=int(text))
    form = _PERCENT.match(text.strip())
    if form is None or float(form.group(1)) > 100:
        message = f"{what} is {shorten(text)}, not a percentage from 0% to 100% or a whole number"
        reader.error("bad-value", node, message, f"write {example}, or a number of records, such as 100")
        return None
    return RecordBound(percent=float(form.group(1)))


def read_texts_by_name(reader: DocumentReader, node: Node, what: str, example: str, *, secret: bool) -> dict[str, str | Secret] | None:
    """Read a mapping of texts; with `secret`, those that contain `${secret:…}` are Secrets."""
    mapping = reader.mapping(node, what, example)
    if mapping is None:
        return None
    read = reader.secret if secret else reader.raw_text
    texts = {name: read(value, f'"{name}" in {what}', "value") for name, (_, value) in mapping.entries.items()}
    given = {name: text for name, text in texts.items() if text is not None}
    return given if len(given) == len(texts) else None


def read_labels(reader: DocumentReader, node: Node, what: str, example: str) -> dict[str, str] | None:
    """Read a mapping of names to texts of one line, of up to 63 characters each."""
    mapping = reader.mapping(node, what, example)
    if mapping is None:
        return None
    labels: dict[str, str] = {}
    for name, (key, value) in mapping.entries.items():
        text = reader.text(value, f'"{name}" in {what}', example)
        if not NAME.match(name):
            reader.error(
                "bad-name",
                key,
                f"{shorten(name)} cannot be a label",
                f"write a name of lower-case letters, digits and _, such as {example}",
            )
        elif text is not None and (len(text) > _LABEL or not text.isprintable() or "," in text):
            message = f'label "{name}" cannot be {shorten(text)}'
            reader.error("bad-name", value, message, f"write up to {_LABEL} characters on one line, without a comma")
        elif text is not None:
            labels[name] = text
    return labels if len(labels) == len(mapping.entries) else None


def read_group(reader: DocumentReader, node: Node, what: str, example: str) -> str | None:
    """Read `GROUP` or `GROUP.MEMBER`."""
    text = reader.text(node, what, example)
    if text is None or (text.count(".") < 2 and all(map(NAME.match, text.split(".")))):
        return text
    reader.error("bad-name", node, f"{what} cannot be {shorten(text)}", f"write a group, or group.member, such as {example}")
    return None


def read_texts(reader: DocumentReader, node: Node, what: str, example: str) -> tuple[str, ...] | None:
    """Read a list of texts, or one text; no text twice."""
    items = reader.items(node, what, example)
    if items is None:
        return None
    texts: list[str] = []
    whole = True
    for item in items:
        text = reader.text(item, f"an item of {what}", example)
        if text is not None and text in texts:
            reader.error("twice", item, f"{what} has {shorten(text)} twice", "take one of the two out")
            text = None
        if text is None:
            whole = False
        else:
            texts.append(text)
    return tuple(texts) if whole else None


def read_words(reader: DocumentReader, node: Node, what: str, example: str) -> tuple[str, ...] | None:
    """Read a list of texts in order, or one text."""
    items = reader.items(node, what, example)
    if items is None:
        return None
    if not items:
        reader.error("wrong-kind", node, f"{what} is empty", f"write {example}")
    words = [reader.raw_text(item, f"an item of {what}", example) for item in items]
    known = tuple(word for word in words if word is not None)
    return known if known and len(known) == len(words) else None


def read_text_or_texts(reader: DocumentReader, node: Node, what: str, example: str) -> str | tuple[str, ...] | None:
    """Read a text, or a list of texts in order; they may be blank."""
    return read_words(reader, node, what, example) if isinstance(node, Sequence) else reader.raw_text(node, what, example)


def read_names(reader: DocumentReader, node: Node, what: str, example: str) -> tuple[str, ...] | None:
    """Read texts that are valid as ids; see `read_texts`."""
    texts = read_texts(reader, node, what, example)
    items = reader.items(node, what, example) if texts else ()
    if texts is None or items is None:
        return None
    good = [reader.check_name(text, item, f"an item of {what}") for text, item in zip(texts, items, strict=True)]
    return texts if all(good) else None


def read_pairs(reader: DocumentReader, node: Node, what: str, example: str) -> Pairs | None:
    """Read a mapping of names to texts, in order."""
    mapping = reader.mapping(node, what, example)
    if mapping is None:
        return None
    pairs: list[tuple[str, str]] = []
    for name, (key, value) in mapping.entries.items():
        if comma_trouble(reader, mapping, key, value, what):
            continue
        text = reader.text(value, f'"{name}" in {what}', example)
        if text is not None:
            pairs.append((name, text))
    if not mapping.entries:
        reader.error("wrong-kind", mapping, f"{what} is empty", f"write {example}, or take the key out")
    return tuple(pairs) if len(pairs) == len(mapping.entries) and pairs else None


def read_selection(reader: DocumentReader, node: Node, what: str, example: str) -> Pairs | None:
    """Read (name, expression) pairs from a mapping, or from a list of `column` and `expression AS name`."""
    if isinstance(node, Mapping):
        return read_pairs(reader, node, what, example)
    items = reader.items(node, what, example)
    if items is None:
        return None
    pairs: list[tuple[str, str]] = []
    for item in items:
        text = reader.text(item, f"an item of {what}", "upper(user) AS who")
        if text is None:
            continue
        renamed, column = _AS.match(text), _COLUMN.match(text.strip())
        if renamed:
            pairs.append((renamed.group(2).strip("`"), renamed.group(1).strip()))
        elif column:
            pairs.append((column.group(1).strip("`"), text.strip()))
        else:
            code = "select-name"
            reader.error(code, item, f"{shorten(text)} in {what} has no name", f"write {text.strip()} AS a_name")
    if not items:
        reader.error("wrong-kind", node, f"{what} is empty", f"write {example}")
    return tuple(pairs) if len(pairs) == len(items) and pairs else None


def read_watermark(reader: DocumentReader, node: Node, what: str, example: str) -> Watermark | None:
    """Read `COLUMN DURATION`."""
    text = reader.text(node, what, example)
    if text is None:
        return None
    form = _WATERMARK.match(text)
    if form is None:
        reader.error("bad-value", node, f"{what} is {shorten(text)}, not a column and a duration", f"write {example}")
        return None
    delay_s = _with_unit(reader, node, form.start(2), form.group(2), what, parse_duration_s)
    return None if delay_s is None else Watermark(form.group(1).strip("`"), delay_s)


def read_schema(reader: DocumentReader, node: Node, what: str) -> Schema | None:
    """Read columns, written as `NAME TYPE, …`."""
    text = reader.text(node, what, "id BIGINT, ts TIMESTAMP")
    if text is None or not isinstance(node, Scalar):
        return None
    try:
        return parse_schema(text)
    except SchemaSyntaxError as error:
        message, remedy = _schema_fault(error)
        reader.error_inside("schema-syntax", node, error.offset, f"{what}: {message}", remedy or "write NAME TYPE, NAME TYPE, …")
        return None


def _schema_fault(error: SchemaSyntaxError) -> tuple[str, str]:
    """(message, remedy) of an error in a schema."""
    message, _, remedy = error.message.partition("; ")
    unknown = _UNKNOWN_TYPE.match(message)
    return message, (did_you_mean(unknown.group(1).upper(), _TYPES) if unknown else "") or remedy


def comma_trouble(reader: DocumentReader, mapping: Mapping, key: Scalar, value: Node, what: str) -> bool:
    """True if a key of `{…}` has no value because a comma or a missing space cut off a text; then a Problem is reported."""
    if not (mapping.flow and isinstance(value, Scalar) and value.plain and not value.value and key.plain):
        return False
    if value.start > key.end and reader.document.text[key.end : value.start].strip():
        return False  # there is a colon: a key with an empty value
    name, colon, rest = key.value.partition(":")
    if colon and rest:
        message = f'there is no space after "{name}:" in {what}'
        reader.error("yaml-comma", key.start + len(name) + 1, message, "write a space after the colon")
    else:
        message = f"a comma inside {{ }} ends the value before {shorten(key.value)} in {what}"
        reader.error("yaml-comma", key, message, "put the whole text in quotes")
    return True


def _whole(text: str) -> int | None:
    """The whole number for `1_000`, `1,000` or `1e3`; None if the text is not one."""
    try:
        number = float(text.replace(",", "").replace("_", ""))
        return int(number) if number.is_integer() else None
    except (ValueError, OverflowError):
        return None


def _with_unit(reader: DocumentReader, node: Node, offset: int, text: str, what: str, parse: Callable[[str], _N]) -> _N | None:
    try:
        return parse(text)
    except ValueError as error:
        message, _, remedy = str(error).partition("; ")
        form = _NUMBER.match(text)
        unit = UNITS.get(form.group(2).lower(), "") if form else ""
        if form and unit:
            try:
                parse(form.group(1) + unit)
                remedy = f'did you mean "{form.group(1)}{unit}"?'
            except ValueError:
                pass
        assert isinstance(node, Scalar)
        reader.error_inside("bad-unit", node, offset, f"{what}: {message}", remedy)
        return None


def _within(reader: DocumentReader, node: Node, what: str, value: float, bounds: Bounds) -> bool:
    limits = (("least", bounds.low, value < (bounds.low or 0)), ("most", bounds.high, value > (bounds.high or 0)))
    for word, bound, beyond in limits:
        if bound is not None and beyond:
            message = f"{what} is {show_bound(bounds.kind, value)}"
            reader.error("out-of-range", node, message, f"write at {word} {show_bound(bounds.kind, bound)}")
            return False
    return True
