"""Builds the Action of a step from the values of its keys. Checks that need no other node, no SQL and no modules are here."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from scribengin.core.problems import did_you_mean
from scribengin.core.zones import UTC_NAME, is_zone, zone_names
from scribengin.formats.dialect import CHECKS, faults_together
from scribengin.spec import keys
from scribengin.spec.model import Action, Aggregate, Dedupe, Filter, Join, Merge, Parse, Python, Route, Select, Sql, Utilities, WindowSpec
from scribengin.spec.yaml_document import Node, shorten

if TYPE_CHECKING:
    from scribengin.spec.reader import DocumentReader
    from scribengin.spec.sections import Read, SectionOwner

_FUNCTION = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*\Z")
_ONE_INPUT = ("filter", "select", "aggregate", "parse", "route", "python", "utilities", "dedupe")
_OTHERWISE = "otherwise"
_PARSE_CSV = ("delimiter", "null", "quote", "escape", "quoted_null", "trim", "extra_cells", "encoding")


def read_action(reader: DocumentReader, read: Read, owner: SectionOwner) -> tuple[str, Action] | None:
    """(operation, action) of a step; None if a Problem was reported."""
    given = [name for name in keys.operation_names() if name in read.given]
    inputs: tuple[str, ...] = read.values.get("from", ())
    if not given:
        if len(inputs) > 1:
            return "merge", Merge()
        if "from" in read.values or "from" not in read.given:
            remedy = f"add one of {', '.join(keys.operation_names())}"
            reader.error("operation-missing", owner.start, f"{owner.called} has no operation", remedy)
        return None
    for name in given[1:]:
        message = f"{owner.called} has both {given[0]} and {name}; a step has one operation"
        reader.error("operation-twice", read.given[name][0], message, f"move {name} to a second step that reads this one")
    name = given[0]
    if name not in read.values:
        return None
    before = reader.errors
    if "order" in read.given and name != "utilities":
        message = f"{owner.called} has `order`, which is valid only with utilities, not with {name}"
        reader.error("key-misplaced", read.given["order"][0], message, "take it out")
    _check_inputs(reader, name, read, owner)
    action = _ACTIONS[name](reader, read.values[name], read, owner)
    return (name, action) if action is not None and reader.errors == before else None


def _check_inputs(reader: DocumentReader, name: str, read: Read, owner: SectionOwner) -> None:
    inputs = read.values.get("from")
    if inputs is None:
        return
    node = read.given["from"][1]
    if name in _ONE_INPUT and len(inputs) > 1:
        remedy = "combine them in a step of their own: {from: [" + ", ".join(inputs) + "]}"
        reader.error("inputs-count", node, f"{owner.called} has {len(inputs)} inputs; {name} takes one", remedy)
    elif name == "join" and len(inputs) != 2:
        reader.error("inputs-count", node, f"{owner.called} has {_count(inputs)}; join takes two", _two(inputs))
    elif name == "merge" and len(inputs) < 2:
        reader.error("inputs-count", node, f"{owner.called} has {_count(inputs)}; merge takes two or more", _two(inputs))


def _two(inputs: tuple[str, ...]) -> str:
    if len(inputs) < 2:
        return f"add a second input: from: [{inputs[0]}, ID]"
    return f"write from: [{inputs[0]}, {inputs[1]}], and join {', '.join(inputs[2:])} in a further step"


def _count(inputs: tuple[str, ...]) -> str:
    return "one input" if len(inputs) == 1 else f"{len(inputs)} inputs"


def _filter(_reader: DocumentReader, value: str, _read: Read, _owner: SectionOwner) -> Action:
    return Filter(value)


def _select(_reader: DocumentReader, value: Any, _read: Read, _owner: SectionOwner) -> Action:
    return Select(value)


def _sql(_reader: DocumentReader, value: str, _read: Read, _owner: SectionOwner) -> Action:
    return Sql(value)


def _aggregate(reader: DocumentReader, value: Read, _read: Read, owner: SectionOwner) -> Action | None:
    values = value.values
    window = values.get("window")
    spec = _window(reader, window, owner) if window else None
    if "columns" not in values or (window and spec is None):
        return None
    return Aggregate(values.get("by", ()), values["columns"], spec)


def _window(reader: DocumentReader, window: Read, owner: SectionOwner) -> WindowSpec | None:
    values = window.values
    if "time" not in values or "size" not in values:
        return None
    slide_s = values.get("slide", values["size"])
    if slide_s > values["size"]:
        message = f"`aggregate.window.slide` of {owner.called} is longer than its size: rows between two windows would be lost"
        reader.error("window-slide", window.given["slide"][1], message, "write a slide of at most the size")
        return None
    zone = values.get("time_zone", UTC_NAME)
    if zone != UTC_NAME and not _zone_fits(reader, window, owner, zone, tumbling=slide_s == values["size"]):
        return None
    return WindowSpec(values["time"], values["size"], slide_s, zone)


def _zone_fits(reader: DocumentReader, window: Read, owner: SectionOwner, zone: str, *, tumbling: bool) -> bool:
    node = window.given["time_zone"][1]
    if not is_zone(zone):
        remedy = did_you_mean(zone, zone_names()) or "write the name of a region, such as Europe/Berlin"
        reader.error(
            "time-zone-unknown",
            node,
            f"`aggregate.window.time_zone` of {owner.called} is {shorten(zone)}, which is not a time zone",
            remedy,
        )
        return False
    if not tumbling or window.values["size"] % 3600:
        what = "is not a whole number of hours long" if tumbling else "slides"
        message = f"{owner.called} has a window in the time zone {zone} that {what}: its bounds are ambiguous when clocks are set back"
        reader.error("window-time-zone", node, message, "take time_zone out, or use a tumbling window of whole hours, such as size: 1d")
        return False
    return True


def _join(reader: DocumentReader, value: Read, read: Read, owner: SectionOwner) -> Action | None:
    values = dict(value.values)
    inputs = read.values.get("from", ())
    _both(reader, value, owner, "join", inputs)
    for name, _ in values.get("time", ()):
        if inputs and name not in inputs:
            message = f'`join.time` of {owner.called} names "{name}", which it does not read'
            reader.error("join-time", value.given["time"][1], message, f"its inputs are {', '.join(inputs)}")
    if "time" in values and len(inputs) == 2 and len(values["time"]) == 1:
        message = f"`join.time` of {owner.called} names the time column of one input only"
        reader.error("join-time", value.given["time"][1], message, f"write time: {{{inputs[0]}: COLUMN, {inputs[1]}: COLUMN}}")
    if "key" not in values:
        return None
    return Join(values["key"], values.get("how", "inner"), values.get("time", ()), values.get("within"))


def _parse(reader: DocumentReader, value: Read, _read: Read, owner: SectionOwner) -> Action | None:
    values = value.values
    for name in _PARSE_CSV:
        if name in value.given and values.get("format", "csv") != "csv":
            message = f"`parse.{name}` of {owner.called} does not apply to format {values['format']}"
            reader.error("key-misplaced", value.given[name][0], message, "take it out")
    wrong = [(name, *fault) for name, check in CHECKS.items() if name in values and (fault := check(values[name])) is not None]
    for name, message, remedy in wrong or faults_together(values):
        reader.error("bad-value", value.given[name][1], f"`parse.{name}` of {owner.called} {message}", remedy)
    if wrong or faults_together(values) or not {"column", "format", "schema"} <= values.keys():
        return None
    cells = tuple(sorted((name, values[name]) for name in _PARSE_CSV[2:] if name in values)) or None
    return Parse(**{name: given for name, given in values.items() if name not in _PARSE_CSV[2:]}, cells=cells)


def _route(reader: DocumentReader, value: tuple[tuple[str, str], ...], read: Read, owner: SectionOwner) -> Action | None:
    node = read.given["route"][1]
    cases = tuple(case for case in value if case[0] != _OTHERWISE)
    otherwise = dict(value).get(_OTHERWISE)
    names = [*(name for name, _ in cases), *([otherwise] if otherwise else [])]
    for name in names:
        reader.check_name(name, _entry(node, name), f"a branch of {owner.called}")
    if not cases:
        reader.error("wrong-kind", node, f"`route` of {owner.called} has no case", "write {big: amount > 100, otherwise: small}")
    if otherwise in dict(cases):
        message = f'`otherwise` of {owner.called} is "{otherwise}", which is already the name of a case'
        reader.error("twice", _entry(node, _OTHERWISE), message, "write another branch name under otherwise")
    return Route(cases, otherwise)


def _entry(node: Node, name: str) -> Node:
    entries = getattr(node, "entries", {})
    return entries[name][0] if name in entries else node


def _python(reader: DocumentReader, value: str | Read, read: Read, owner: SectionOwner) -> Action | None:
    if isinstance(value, str):
        node = read.given["python"][1]
        return Python(value) if _is_function(reader, value, node, owner) else None
    values = value.values
    if "function" not in values or not _is_function(reader, values["function"], value.given["function"][1], owner):
        return None
    return Python(values["function"], values.get("branches", ()), values.get("time_limit", 30.0))


def _is_function(reader: DocumentReader, text: str, node: Node, owner: SectionOwner, key: str = "python") -> bool:
    if _FUNCTION.match(text):
        return True
    if text.endswith(".py"):
        module = text.removesuffix(".py").replace("/", ".").strip(".")
        remedy = f'name the function too: "{module}:function"'
        reader.error("function-syntax", node, f"`{key}` of {owner.called} is {shorten(text)}, which is a file", remedy)
        return False
    path, _, name = text.removesuffix("()").rpartition(":" if ":" in text else ".")
    module = path.removesuffix(".py").replace("/", ".").strip(".")
    better = f"{module}:{name}"
    remedy = f'did you mean "{better}"?' if _FUNCTION.match(better) else 'write "module:function"'
    reader.error("function-syntax", node, f"`{key}` of {owner.called} is {shorten(text)}, not module:function", remedy)
    return False


def _utilities(reader: DocumentReader, value: tuple[str, ...], read: Read, owner: SectionOwner) -> Action | None:
    node = read.given["utilities"][1]
    items = getattr(node, "items", None) or [node]
    good = [_is_function(reader, text, item, owner, "utilities") for text, item in zip(value, items, strict=True)]
    return Utilities(value, read.values.get("order", "fixed")) if all(good) else None


def _dedupe(reader: DocumentReader, value: Read, _read: Read, owner: SectionOwner) -> Action | None:
    _both(reader, value, owner, "dedupe")
    values = value.values
    return Dedupe(values["key"], values.get("time"), values.get("within")) if "key" in values else None


def _merge(reader: DocumentReader, value: Read, _read: Read, owner: SectionOwner) -> Action | None:
    _both(reader, value, owner, "merge")
    how = value.values.get("how", "union")
    if how == "union":
        for name in ("key", "time", "within"):
            if name in value.given:
                message = f"`merge.{name}` of {owner.called} does not apply: a union takes every row"
                reader.error("merge-union", value.given[name][0], message, f"take {name} out, or write how: intersect")
    elif "key" not in value.given:
        reader.error("missing-key", owner.start, f"{owner.called} has no `merge.key`, which intersect needs", "add key: [COLUMN]")
    if how != "union" and "origin" in value.given:
        message = f"`merge.origin` of {owner.called} does not apply: a row of an intersection is in every input"
        reader.error("key-misplaced", value.given["origin"][0], message, "take it out, or write how: union")
    values = value.values
    return Merge(how, values.get("key", ()), values.get("time"), values.get("within"), values.get("origin"))


def _both(reader: DocumentReader, value: Read, owner: SectionOwner, name: str, inputs: tuple[str, ...] = ()) -> None:
    """Report an error if one of `time` and `within` is set without the other. A join names the time column of each of its `inputs`."""
    time = f"{{{', '.join(f'{id_}: COLUMN' for id_ in inputs or ('INPUT', 'INPUT'))}}}" if name == "join" else "COLUMN"
    for one, other, example in (("time", "within", "10m"), ("within", "time", time)):
        if one in value.given and other not in value.given:
            message = f"`{name}.{one}` of {owner.called} needs `{name}.{other}`"
            reader.error("time-within", value.given[one][0], message, f"add {other}: {example}, or take {one} out")


_ACTIONS: dict[str, Any] = {
    "filter": _filter,
    "select": _select,
    "sql": _sql,
    "aggregate": _aggregate,
    "join": _join,
    "parse": _parse,
    "route": _route,
    "python": _python,
    "utilities": _utilities,
    "dedupe": _dedupe,
    "merge": _merge,
}
