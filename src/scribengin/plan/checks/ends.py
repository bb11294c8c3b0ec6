"""Rules on single sources and sinks: formats, schemas, abilities of sinks, and what sinks of one query must share."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING

from scribengin.core.options import GIVEN
from scribengin.core.problems import suggestion
from scribengin.formats.dialect import faults_together
from scribengin.plan.checks.subject import Subject, called, path_of
from scribengin.plan.describe import listed
from scribengin.plan.graph import query_sinks
from scribengin.plan.guarantees import written_by_spark
from scribengin.plan.resolve import source_columns

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scribengin.core.problems import Problem
    from scribengin.spec.model import Sink
    from scribengin.spec.places import Path

_NEED_SCHEMA = ("json", "csv", "avro")
"""formats whose data do not declare their columns"""
_TEMPLATE = re.compile(r"\{([^{}]*)\}")
_NOT_BY_SPARK = (*("quote", "escape", "quoted_null", "trim", "extra_cells", "comment", "skip_lines", "columns", "header_names", "null"),)
"""options of CSV that `parse: spark` does not support"""
_NESTED = ("ARRAY", "MAP", "STRUCT", "BINARY")


def options_fit_the_format(subject: Subject) -> Iterator[Problem]:
    """An option that does not apply to the chosen format is an error."""
    nodes = ((subject.source_types, subject.flow.sources), (subject.sink_types, subject.flow.sinks))
    for types, members in nodes:
        for node in members.values():
            declared = types.get(node.type)
            format_ = node.options.get("format")
            if declared is None or format_ is None:
                continue
            for name in node.options:
                option = declared.option(name)
                if option is not None and option.formats and format_ not in option.formats:
                    message = f'{called(node)} has "{name}", which format {format_} does not have'
                    remedy = f"take it out; it belongs to {' and '.join(option.formats)}"
                    yield subject.problem_at_key("option-not-of-format", path_of(node, name), message, remedy)


def options_fit_together(subject: Subject) -> Iterator[Problem]:
    """Report what a connector's own check of its options finds."""
    nodes = ((subject.source_types, subject.flow.sources), (subject.sink_types, subject.flow.sinks))
    for types, members in nodes:
        for node in members.values():
            declared = types.get(node.type)
            if (
                declared is None
                or declared.check is None
                or any(each.required and each.name not in node.options for each in declared.options)
            ):
                continue
            fault = declared.check(declared.filled(node.options, subject.flow.defaults.profile))
            if fault is not None:
                yield subject.problem("bad-value", path_of(node, fault[0]), f"{called(node)} {fault[1]}", fault[2])


def csv_options_fit_together(subject: Subject) -> Iterator[Problem]:
    """Report options of CSV that are valid alone but not together."""
    for source in subject.flow.sources.values():
        options = source.options
        if options.get("format") not in ("csv", "text"):
            continue
        for name, message, remedy in faults_together(options):
            yield subject.problem("bad-value", path_of(source, name), f'"{name}" of {called(source)} {message}', remedy)
        named = options.get("columns") if isinstance(options.get("columns"), Mapping) else {}
        for name in ("columns", "header_names"):
            if options.get(name) and options.get("header") is False:
                message = f'"{name}" of {called(source)} has no effect with header: false, because columns are read by position'
                yield subject.problem_at_key("bad-value", path_of(source, name), message, "take it out")
        if source.schema is not None:
            names = list(source.schema.fields.names)
            for name in named or {}:
                if name not in names:
                    message = f'{called(source)} maps the header to the column "{name}", which its schema does not have'
                    yield subject.problem_at_key("column-unknown", path_of(source, "columns", name), message, _known(name, names))
        if options.get("parse") == "spark":
            for name in _NOT_BY_SPARK:
                if name in options and (name != "null" or not isinstance(options[name], str)):
                    message = f'{called(source)} has "{name}", which parse: spark does not support'
                    yield subject.problem_at_key("bad-value", path_of(source, name), message, "take it out, or write parse: strict")


def schemas_are_known(subject: Subject) -> Iterator[Problem]:
    """JSON, CSV, Avro messages and documents do not declare their columns; text and sequences have fixed columns."""
    for source in subject.flow.sources.values():
        format_, declared = source.options.get("format"), subject.declared(source)
        if source.schema is None:
            untyped = "" if declared is None else declared.untyped
            if format_ in _NEED_SCHEMA or untyped:
                remedy = 'add the columns that you need: schema: "COLUMN TYPE, COLUMN TYPE"'
                if subject.has(source, "inferable"):
                    path = str(source.options.get("path", "FILE"))
                    typed = path if "://" in path else str(subject.flow.folder / path)  # relative to the folder in which the user is
                    remedy += f"; to get a proposal, run: scribengin infer {shlex.quote(typed)}"
                message = f"{called(source)} reads {format_ or untyped} and has no schema"
                yield subject.problem_at_key("schema-missing", path_of(source), message, remedy)
            continue
        beside = {*(source.options.get("metadata") or {}), *(source.options.get("partition_columns") or {})}
        if format_ == "text" and [str(field.type) for field in source.schema.fields.fields if field.name not in beside] != ["STRING"]:
            message = f"{called(source)} reads text; its schema must be one STRING column"
            yield subject.problem("schema-surplus", path_of(source, "schema"), message, "write schema: value STRING, or take it out")
        if declared is not None and declared.fixed_columns is not None:
            fixed = listed([f"{field.name} {field.type}" for field in declared.fixed_columns.fields])
            message = f"{called(source)} has the fixed columns {fixed}"
            yield subject.problem("schema-surplus", path_of(source, "schema"), message, "take `schema` out")
    for source in subject.flow.sources.values():
        if source.static and source.watermark is not None and source_columns(source) is not None:
            message = f"{called(source)} is static and has a watermark; only a stream can have one"
            yield subject.problem(
                "watermark-on-static", path_of(source, "watermark"), message, "take one of the two out", severity="warning"
            )


def delivery_can_be_kept(subject: Subject) -> Iterator[Problem]:
    """`exactly_once` needs a sink that supports it and sources that can be re-read identically."""
    for sink in subject.flow.sinks.values():
        declared = subject.sink_types.get(sink.type)
        if declared is None or "view" in declared.abilities or (sink.delivery or subject.flow.defaults.delivery) != "exactly_once":
            continue
        path = path_of(sink, "delivery") if sink.delivery else path_of(sink, "type")
        if "exactly_once" not in declared.able(sink.options):
            message = f"{called(sink)}: delivery is exactly_once, which a sink of type {sink.type} does not support"
            more = next((option for option in declared.options if "exactly_once" in option.adds.get(GIVEN, ())), None)
            can = (
                f"set the writer's option for it: {more.name}: {more.example}"
                if more is not None
                else "use a sink that supports it, such as files"
            )
            yield subject.problem("delivery-unsupported", path, message, f"write delivery: at_least_once, or {can}")
            continue
        above = subject.graph.upstream([sink.id])
        for source in subject.flow.sources.values():
            gives = subject.source_types.get(source.type)
            if source.id in above and gives is not None and "replayable" not in gives.able(source.options):
                told = gives.without("replayable", source.options)
                message = f'{called(sink)}: delivery is exactly_once, but source "{source.id}" ({told}) cannot be re-read identically'
                yield subject.problem("delivery-unsupported", path, message, "write delivery: at_least_once")


def options_fit_the_delivery(subject: Subject) -> Iterator[Problem]:
    """An option that does not apply to the chosen delivery is an error."""
    for sink in subject.flow.sinks.values():
        declared = subject.sink_types.get(sink.type)
        if declared is None or "spark_writes" not in declared.abilities:
            continue
        asked = sink.delivery or subject.flow.defaults.delivery
        for name in sink.options:
            option = declared.option(name)
            if option is not None and option.deliveries and asked not in option.deliveries:
                message = (
                    f"{called(sink)} has \"{name}\", which Spark's own sink does not support; Spark's sink is used for delivery: {asked}"
                )
                remedy = f"take it out; it belongs to delivery: {' and '.join(option.deliveries)}"
                yield subject.problem_at_key("option-not-of-delivery", path_of(sink, name), message, remedy)


def spark_writes_alone(subject: Subject) -> Iterator[Problem]:
    """A sink that Spark writes cannot share its query: the Batch has one action, which is Spark's write."""
    for name, sinks in query_sinks(subject.flow).items():
        for sink in sinks if len(sinks) > 1 else ():
            if written_by_spark(subject.flow, sink, subject.sink_types):
                message = (
                    f"{called(sink)} has together: {name} and delivery: at_least_once: Spark's own sink cannot commit together "
                    "with another sink"
                )
                remedy = "take together out, or write delivery: exactly_once"
                yield subject.problem("delivery-together", path_of(sink, "together"), message, remedy)


def query_names_are_unique(subject: Subject) -> Iterator[Problem]:
    """Sinks of one query have the same trigger; the name of a query is not the id of another sink."""
    for name, sinks in query_sinks(subject.flow).items():
        first, *others = sinks
        for sink in others:
            if (sink.together is None) != (first.together is None):
                with_name = sink if sink.together else first
                message = f"{called(with_name)} has together: {name}, which is also the id of a sink outside that group"
                yield subject.problem("together-name", path_of(with_name, "together"), message, "write another name")
            elif _trigger(subject, sink.trigger_s) != _trigger(subject, first.trigger_s):
                message = f'{called(sink)} and sink "{first.id}" have different triggers, but together: {name} makes them one query'
                yield subject.problem("together-trigger", path_of(sink, "trigger"), message, "give both the same trigger")


def _trigger(subject: Subject, given: float | None) -> float:
    return subject.flow.defaults.trigger_s if given is None else given


def columns_fit_the_sink(subject: Subject) -> Iterator[Problem]:
    """`partition_by` names columns and leaves at least one; text needs one STRING column; CSV has no nested values."""
    for sink in subject.flow.sinks.values():
        columns = subject.resolved.of(sink.id)
        if columns is None:
            continue
        names = [column.name for column in columns]
        by = tuple(sink.options.get("partition_by") or ())
        folders = tuple(part for part in by if isinstance(part, str))
        for index, name in enumerate(by):
            if isinstance(name, str) and name not in names:
                message = f'{called(sink)} partitions by "{name}", which is not a column of its input'
                yield subject.problem("partition-unknown", path_of(sink, "partition_by", index), message, _known(name, names))
        if folders and set(names) <= set(folders):
            message = f"{called(sink)} partitions by all of its columns, so no column is left for the files"
            yield subject.problem("partition-all", path_of(sink, "partition_by"), message, "take at least one out of `partition_by`")
        yield from _message_columns(subject, sink, names)
        beside = folders or _beside_the_value(sink, names)
        rest = [column for column in columns if column.name not in beside]
        match sink.options.get("format"):
            case "text" if len(rest) != 1 or (rest[0].type is not None and rest[0].type.name != "STRING"):
                shown = ", ".join(map(str, rest))
                message = f"{called(sink)} writes text, which needs exactly one STRING column, but its input is {shown}"
                yield subject.problem(
                    "format-columns", path_of(sink, "format"), message, "select one column in a step before it, or use format: json"
                )
            case "csv":
                for column in rest:
                    if column.type is not None and column.type.name in _NESTED:
                        message = f'{called(sink)} writes csv, which cannot represent column "{column.name}" ({column.type})'
                        yield subject.problem(
                            "format-columns", path_of(sink, "format"), message, "use format: json, or convert the column to text"
                        )
            case _:
                pass


def _named(sink: Sink) -> Iterator[tuple[Path, str]]:
    """(the option's path, the column) for the columns that options of a message sink name."""
    options = sink.options
    yield from ((("topic",), name) for name in _TEMPLATE.findall(options.get("topic", "")))
    yield from (((option,), options[option]) for option in ("key", "timestamp") if options.get(option))
    yield from ((("columns", index), name) for index, name in enumerate(options.get("columns") or ()))
    yield from ((("headers", header), name) for header, name in (options.get("headers") or {}).items())


def _message_columns(subject: Subject, sink: Sink, names: list[str]) -> Iterator[Problem]:
    if "topic" not in sink.options:
        return
    for place, name in _named(sink):
        if name not in names:
            message = f'{called(sink)} has {place[0]} from column "{name}", which is not a column of its input'
            yield subject.problem("column-unknown", path_of(sink, *place), message, _known(name, names))


def _beside_the_value(sink: Sink, names: list[str]) -> set[str]:
    """The columns that are not part of a message's value (`connectors.kafka.outgoing`)."""
    if "topic" not in sink.options:
        return set()
    if sink.options.get("columns"):
        return set(names) - set(sink.options["columns"])
    headers = set((sink.options.get("headers") or {}).values())
    named = {name for _, name in _named(sink)} if sink.options.get("format") in ("text", "binary") else headers
    return named if set(names) - named else headers


def _known(name: str, names: list[str]) -> str:
    return suggestion(name, names, "its columns are")
