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
    """Begin a flow in Python: a source of that type with its options, and `schema`, `watermark`, `static`, `on_error`."""
    from scribengin.spec.build import make_source

    return make_source(type, id=id, **keys)


def sink(type: str, **options: Any) -> Mapping[str, Any]:
    """Where the rows of an `App` go: what a flow file says of a sink, and its `id`, else `kept`."""
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
    """A flow of a source, an ordered list of Python steps and a sink; the file sets it to its variable `flow`, or `app`.

    `order="free"` lets tests run in the order that costs least; the others are as in `source(…).utilities(…)` and `Flow(…)`. Raises
    InputError that holds every mistake, each at the line of its call.
    """
    import os

    from scribengin.connectors.catalog import sink_types, source_types
    from scribengin.spec.app import build_app

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
    """The flow that ends in `sinks`, each made by `.to(…)`; a flow file in Python sets it to its variable `flow`.

    `defaults`, `tiers`, `edges`, `groups`, `max_delay`, `max_dead`, `alerts`, `labels` and `tests` hold what stands under these keys in a
    flow
    file. Raises InputError that holds every mistake, each at the line of its call.
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
