"""The short Python form: an application is a source, an ordered list of Python steps, and a sink."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from scribengin.core.errors import InputError
from scribengin.core.problems import Problem
from scribengin.spec.build import Output, Stream, build_flow
from scribengin.spec.calls import caller

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scribengin.spec.build import Function
    from scribengin.spec.model import Flow

STEP = "utilities"
"""what the one step of an app is called: its utilities are `utilities.f` in the ledger"""


def build_app(
    name: str,
    source: Stream,
    utilities: Sequence[Function],
    sink: Mapping[str, Any] | Sequence[Mapping[str, Any]],
    *,
    order: str | None,
    schema: Any,
    on_error: str | None,
    **rest: Any,
) -> Flow:
    """`sink` has the keys of a sink in a flow file; several sinks get the same rows. `rest` as in `build_flow`. Raises InputError."""
    place = caller()
    if not isinstance(source, Stream):
        raise InputError([Problem("app-part", place, f"the app's source is {_kind(source)}", 'write source("files", path="data", …)')])
    if not isinstance(utilities, list | tuple):
        raise InputError([Problem("app-part", place, f"the app's utilities are {_kind(utilities)}", "write a list: utilities=[tagged]")])
    rows = source
    given: dict[str, Any] = {key: value for key, value in (("order", order), ("schema", schema), ("on_error", on_error)) if value}
    if given and not utilities:
        raise InputError([Problem("app-part", place, f"the app has {', '.join(given)} but no utilities", "add utilities, or leave it out")])
    if utilities:
        rows = source.utilities(*utilities, id=STEP, **given)
    sinks = sink if isinstance(sink, list | tuple) else [sink]
    return build_flow(name, *(_output(rows, each, place, number) for number, each in enumerate(sinks, 1)), **rest)


def _output(rows: Stream, sink: Any, place: Any, number: int) -> Output:
    if not isinstance(sink, Mapping) or "type" not in sink:
        raise InputError([Problem("app-part", place, f"the app's sink is {_kind(sink)}", 'write sink("files", path="out", format="json")')])
    return rows.to(**{"id": "kept" if number == 1 else f"kept_{number}", **sink})


def _kind(value: object) -> str:
    return f"a {type(value).__name__}" + (" without a type" if isinstance(value, Mapping) else "")
