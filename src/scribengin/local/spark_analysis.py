"""The deep check: Spark analyses names and types of every step, before anything runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from scribengin.connectors import catalog
from scribengin.connectors.abilities import compares_columns
from scribengin.connectors.files.schema_guard import differences
from scribengin.core.errors import ScribenginError
from scribengin.core.problems import Problem
from scribengin.local.prepare import first_file_faults, open_sinks, open_sources
from scribengin.local.query_parts import limits_by_source, query_parts, static_by_source
from scribengin.local.session import start
from scribengin.local.sink_columns import Accepting
from scribengin.plan.tier_flows import CHANNEL
from scribengin.spark.compile import Compiler
from scribengin.spark.failures import step_failure
from scribengin.spark.query import check_streaming, streaming_inputs
from scribengin.spark.shared_session import close_session
from scribengin.spark.task_report import new_reports
from scribengin.spark.user_code import pack
from scribengin.state.columns import ChannelFolder

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from pyspark.sql import SparkSession

    from scribengin.connectors.contract import SinkConnector
    from scribengin.core.problems import Place
    from scribengin.core.types import Schema
    from scribengin.local.contract import RunSettings
    from scribengin.local.prepare import Prepared, PreparedFlow
    from scribengin.spark.user_code import UserCode
    from scribengin.spec.model import Flow


def check_deep(prepared: PreparedFlow, settings: RunSettings) -> list[Problem]:
    """Make Spark analyse names and types of every step. Starts a session (5 to 15 s) and stops it."""
    found = list(_first_files(prepared))
    spark = start([prepared], settings)
    try:
        return found + deep_problems(spark, prepared, pack(prepared.plan.flow.code_folder, prepared.here))[1]
    finally:
        close_session(spark)


def _first_files(prepared: PreparedFlow) -> Iterator[Problem]:
    """The problems for which a run would refuse the files that sources are going to read first."""
    for error in first_file_faults(prepared):
        # other errors are left out, because the data may arrive before the run
        if error.code == "source-columns" and error.place is not None:
            yield Problem(error.code, error.place, error.message, error.remedy)


def deep_problems(
    spark: SparkSession,
    prepared: PreparedFlow,
    code: UserCode,
    columns: dict[str, Schema] | None = None,
    accepting: Accepting | None = None,
) -> tuple[PreparedFlow, list[Problem]]:
    """Make Spark analyse the steps of each tier, each step once. Upstream tiers come first, because the columns of their channels are known
    only then. Changes nothing: a run that holds the leases stores these columns with `store_channel_columns`.

    Args:
        spark: A session.
        prepared: The flow.
        code: The user's code.
        columns: Receives sink → its columns. Channels are sinks here.
        accepting: The columns that may differ from those in the sinks' folders; None for those that were accepted before.

    Returns:
        The flow as it is planned when the columns of all channels are known, and the problems, with their places in the flow file.
    """
    accepting = accepting or Accepting(prepared)
    columns = {} if columns is None else columns
    problems: dict[str, Problem] = {}
    for tier in [each.plan.tier for each in prepared.tiers]:
        _check_tier(spark, next(each for each in prepared.tiers if each.plan.tier == tier), code, problems, columns, accepting)
        prepared = prepared.again(columns)
    return prepared, list(problems.values())


def store_channel_columns(prepared: PreparedFlow, columns: Mapping[str, Schema]) -> None:
    """Store the columns of the channels that the flow's tiers write to, for the tiers that read them. The caller holds the leases of the
    tiers.

    Args:
        prepared: The flow.
        columns: Sink → its columns, as `deep_problems` has found them.
    """
    for tier in prepared.tiers:
        for sink, node in tier.plan.flow.sinks.items():
            if node.type == CHANNEL:
                ChannelFolder.of(prepared.root, prepared.name, sink).write_schema(columns[sink])


def _check_tier(
    spark: SparkSession,
    prepared: Prepared,
    code: UserCode,
    problems: dict[str, Problem],
    columns: dict[str, Schema],
    accepting: Accepting,
) -> None:
    plan = prepared.plan
    sources, sinks = open_sources(plan.flow), open_sinks(plan.flow)
    for query in plan.queries:
        try:
            parts = query_parts(plan, query, prepared.folder.query(query.name), code, sources, sinks)
            session = spark.newSession()
            inputs = streaming_inputs(session, parts, limits_by_source(parts), static_by_source(query, sources))
            compiler = Compiler(session, parts)
            check_streaming(session, compiler.compile(inputs, new_reports(session)), parts)
            columns.update(compiler.sink_schemas)
            for sink in query.sinks:
                schema = compiler.sink_schemas[sink]
                unlike = column_differences(plan.flow, sink, schema)
                if unlike and not accepting.takes(plan.tier, sink, schema, unlike):
                    problems |= {each.message: each for each in held_problems(sink, unlike, prepared.place_of(sink))}
                problems |= {each.message: each for each in _place_problems(sinks[sink], sink, schema, prepared.place_of(sink))}
        except ScribenginError as error:
            problem = Problem(error.code, prepared.place_of(error.node or query.name), error.message, error.remedy)
            problems.setdefault(problem.message, problem)
        except Exception as error:
            fault = step_failure(query.name, error)
            problems.setdefault(fault.message, Problem(fault.code, prepared.place_of(query.name), fault.message, fault.remedy))


def _place_problems(opened: SinkConnector, sink: str, schema: Schema, place: Place) -> Iterator[Problem]:
    """The problems of an existing table that does not accept the columns; this cannot be overridden."""
    for text in opened.unlike(schema) if compares_columns(opened) else ():
        remedy = "alter the table, cast the column or leave it out in a `select` before the sink, or write to another table"
        yield Problem("table-columns", place, f'sink "{sink}": {text}', remedy)


def column_differences(flow: Flow, sink: str, schema: Schema) -> list[str]:
    """The differences between the columns of a sink and those of the files in its folder, one sentence each: readers would fail, or
    silently lose a column."""
    node = flow.sinks[sink]
    if node.type != "files" or "path" not in node.options or node.to is not None:
        return []
    options = catalog.sink_types(internal=True)["files"].filled(node.options, flow.defaults.profile)
    return differences(Path(flow.folder, node.options["path"]).expanduser(), options, schema)


def held_problems(sink: str, unlike: Iterable[str], place: Place) -> Iterator[Problem]:
    """The problems for which a start is refused unless the columns were accepted. `place` is the sink's."""
    remedy = (
        "give the sink another path, cast the column back in a `select`, accept the new columns (`--accept columns`), or set"
        " `evolve: any` on the sink if its readers can read both"
    )
    for text in unlike:
        yield Problem("output-columns", place, f'sink "{sink}": {text}', remedy)
