"""Describes a node in one line for messages, without secrets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, assert_never

from scribengin.core.options import Option
from scribengin.core.units import show_bytes, show_duration
from scribengin.core.zones import UTC_NAME
from scribengin.spec.model import Aggregate, Dedupe, Filter, Join, Merge, Parse, Python, Route, Select, Sink, Source, Sql, Step, Utilities

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scribengin.core.options import NodeType


def describe(node: Source | Step | Sink, types: Mapping[str, NodeType]) -> str:
    """A description such as `filter: followers > 5000`; `types` are those of the node's role."""
    match node:
        case Source():
            marks = [*(["static"] if node.static else []), *([f"watermark {watermark(node)}"] if node.watermark else [])]
            return ", ".join([*_outside(node, types), *marks])
        case Sink():
            what, *options = _outside(node, types)
            return ", ".join([what, *([f"to {node.to}"] if node.to else []), *options])
        case Step():
            required = [f"require {name}: {predicate}" for name, predicate in node.require]
            own = [f"watermark {watermark(node)}"] if node.watermark else []
            return "; ".join([_action(node), *required, *own])
        case _:
            assert_never(node)


def watermark(node: Source | Step) -> str:
    """The watermark as text: `ts 10m00s`; empty if the node has none."""
    mark = node.watermark
    if mark is None:
        return ""
    bounds = [f"{name} {span(span_s)}" for name, span_s in (("ahead", mark.ahead_s), ("idle", mark.idle_s)) if span_s is not None]
    return f"{mark.column} {span(mark.delay_s)}" + (f" ({', '.join(bounds)})" if bounds else "")


def listed(names: Sequence[str]) -> str:
    """`a, b and c`; `nothing` if there are none."""
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]])) if names else "nothing"


def span(seconds: float) -> str:
    """A duration without the parts that are zero: `10m`, `1h`, `1.5s`."""
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds and seconds % size == 0:
            return f"{seconds // size:.0f}{unit}"
    return f"{seconds:g}s" if seconds < 60 else show_duration(seconds)


def _outside(node: Source | Sink, types: Mapping[str, NodeType]) -> list[str]:
    shown = [f"{node.type} {node.options['path']}" if "path" in node.options else node.type]
    if "format" in node.options:
        shown.append(str(node.options["format"]))
    declared = types.get(node.type)
    for name, value in node.options.items():
        if name not in ("path", "format"):
            shown.append(f"{name} {_value(declared.option(name) if declared else None, value)}")
    return shown


def _value(option: Option | None, value: Any) -> str:
    if option is not None and option.secret:
        return "(secret)"
    if option is not None and option.kind == "bytes":
        return show_bytes(value)
    if option is not None and option.kind == "duration":
        return span(value)
    if isinstance(value, Mapping):
        known = option or Option("", "text", "")
        return "{" + ", ".join(f"{name} {_value(known.key(name), item)}" for name, item in value.items()) + "}"
    if isinstance(value, tuple | list):
        return "[" + ", ".join(_value(option, item) if isinstance(item, Mapping) else str(item) for item in value) + "]"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _action(step: Step) -> str:
    action = step.action
    match action:
        case Filter(predicate):
            return f"filter: {_flat(predicate)}"
        case Select(pairs):
            return "select: " + _pairs(pairs)
        case Sql(text):
            return f"sql: {_flat(text)}"
        case Aggregate(by, pairs, window):
            every = f", every {span(window.slide_s)}" if window and window.slide_s != window.size_s else ""
            zone = f" ({window.time_zone})" if window and window.time_zone != UTC_NAME else ""
            over = [f"window of {span(window.size_s)}{every} over {window.time}{zone}"] if window else []
            groups = f" by {', '.join([*over, *by])}" if over or by else ""
            return f"aggregate{groups}: {_pairs(pairs)}{f' (emit {step.emit})' if step.emit != 'append' else ''}"
        case Join(key, how, _, within):
            return f"{how} join on {', '.join(key)}" + (f" within {span(within)}" if within is not None else "")
        case Parse(column, format_, schema):
            return f"parse {column} as {format_}: {schema}"
        case Route(cases, otherwise):
            return "route: " + "; ".join(
                [*(f"{name}: {_flat(predicate)}" for name, predicate in cases), *([f"else {otherwise}"] if otherwise else [])]
            )
        case Python(reference, branches):
            return f"python {reference}" + (f" (branches {', '.join(branches)})" if branches else "")
        case Utilities(references, order):
            what = "tests in the cheapest order" if order == "free" else "a sequence of Python steps"
            return f"{len(references)} utilities, order {order}: {what}"
        case Dedupe(key, time, within):
            timed = f" by {time}" * bool(time) + (f" within {span(within)}" if within is not None else "")
            return f"dedupe on {', '.join(key)}{timed}"
        case Merge(how, key, _, within, origin):
            if how == "union":
                return "union by name" + (f", its origin in {origin}" if origin else "")
            return f"intersect on {', '.join(key)}" + (f" within {span(within)}" if within is not None else "")
        case _:
            assert_never(action)


def _pairs(pairs: tuple[tuple[str, str], ...]) -> str:
    return ", ".join(name if name == expression else f"{_flat(expression)} AS {name}" for name, expression in pairs)


def _flat(text: str) -> str:
    return " ".join(text.split())
