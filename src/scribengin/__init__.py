"""Scribengin: reliable data flows on Spark, in Python.

A module of steps imports `record`, `batch`, `frame` and `to`; a flow in Python also `source` and `Flow`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scribengin.spec.functions import batch, frame, record, to

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scribengin.spec import model
    from scribengin.spec.build import Function, Output, Stream

__all__ = ["App", "Flow", "batch", "frame", "record", "sink", "source", "to"]


def source(type: str, *, id: str | None = None, **keys: Any) -> Stream:
    """Begin a flow in Python with a source.

    Args:
        type: The type of the source, such as `files` or `kafka`.
        id: The name of the source; by default its type.
        keys: The options of the type, and `schema`, `watermark`, `static`, `on_error`, as in the flow file.

    Returns:
        The rows of the source. Its methods add steps, and `to` adds a sink.

    Example:
        >>> from scribengin import Flow, source
        >>> numbers = source("sequence", rows=10).filter("id > 4")
        >>> flow = Flow("shop", numbers.to("console"))
        >>> list(flow.sources), list(flow.steps), list(flow.sinks)
        (['sequence'], ['sequence_filter'], ['sequence_filter_console'])
    """
    from scribengin.spec.build import make_source

    return make_source(type, id=id, **keys)


def sink(type: str, **options: Any) -> Mapping[str, Any]:
    """Define a sink of an `App`.

    Args:
        type: The type of the sink, such as `files` or `kafka`.
        options: The options of the type, as in the flow file, and `id`; the default id is `kept`.
    """
    return {"type": type, **options}


def App(  # noqa: N802
    name: str,
    *,
    source: Stream,
    utilities: Sequence[Function],
    sink: Mapping[str, Any] | Sequence[Mapping[str, Any]],
    order: str | None = None,
    schema: str | None = None,
    on_error: str | None = None,
    about: str = "",
    defaults: Mapping[str, Any] | None = None,
    tiers: Mapping[str, Any] | None = None,
    groups: Mapping[str, Any] | None = None,
    labels: Mapping[str, str] | None = None,
) -> model.Flow:
    """Make a flow of a source, Python functions in order, and sinks. A flow file in Python assigns it to `flow` or `app`.

    Args:
        name: The name of the flow.
        source: The source, made by `source(…)`, perhaps with further steps.
        utilities: The functions, as objects or as texts `module:name`. They are one step, and each is counted.
        sink: The sink or sinks, made by `sink(…)`.
        order: "free" lets tests (functions that return a bool) run in the order that costs least.
        schema: The columns of the rows behind the functions, such as `id BIGINT, name STRING`.
        on_error: The treatment of a record that a function cannot process: `dead_letter`, `drop` or `fail`.
        about: A text for people.
        defaults: As the key `defaults` of the flow file; so are `tiers`, `groups` and `labels`.

    Raises:
        InputError: with all mistakes, each at the line of its call.
    """
    import os

    from scribengin.connectors.catalog import sink_types, source_types
    from scribengin.spec.build import build_app

    return build_app(
        name,
        source,
        utilities,
        sink,
        order=order,
        schema=schema,
        on_error=on_error,
        about=about,
        defaults=defaults,
        tiers=tiers,
        groups=groups,
        labels=labels,
        source_types=source_types(),
        sink_types=sink_types(),
        environment=os.environ,
    )


def Flow(  # noqa: N802
    name: str,
    *sinks: Output,
    about: str = "",
    defaults: Mapping[str, Any] | None = None,
    tiers: Mapping[str, Any] | None = None,
    edges: Mapping[str, Any] | None = None,
    groups: Mapping[str, Any] | None = None,
    max_delay: str | None = None,
    max_dead: str | int | Mapping[str, Any] | None = None,
    alerts: Mapping[str, Any] | None = None,
    labels: Mapping[str, str] | None = None,
    tests: Sequence[Mapping[str, Any] | str] = (),
) -> model.Flow:
    """Make a flow. A flow file in Python assigns it to `flow`.

    Args:
        name: The name of the flow.
        sinks: The ends of the flow, each made by `.to(…)` of a stream.
        about: A text for people.
        defaults: As the key `defaults` of the flow file; so are `tiers`, `edges`, `groups`, `max_delay`, `max_dead`, `alerts`, `labels`
            and `tests`.

    Raises:
        InputError: with all mistakes, each at the line of its call.
    """
    import os

    from scribengin.connectors.catalog import sink_types, source_types
    from scribengin.spec.build import build_flow

    return build_flow(
        name,
        *sinks,
        about=about,
        defaults=defaults,
        tiers=tiers,
        edges=edges,
        groups=groups,
        labels=labels,
        tests=tests,
        max_delay=max_delay,
        max_dead=max_dead,
        alerts=alerts,
        source_types=source_types(),
        sink_types=sink_types(),
        environment=os.environ,
    )
