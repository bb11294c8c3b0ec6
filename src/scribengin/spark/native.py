"""Spark SQL steps as functions from frames to frames, for batch and streaming frames alike."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, Any

from scribengin.core.errors import StepError
from scribengin.core.types import Field, Schema, Type, in_backticks
from scribengin.core.zones import UTC_NAME
from scribengin.plan.graph import flat_name
from scribengin.plan.sql.patterns import escape_patterns
from scribengin.plan.sql.rewrite import rename_inputs
from scribengin.spark.late_rows import with_local_window
from scribengin.spark.program import AT, DEAD, MADE_OF, PART
from scribengin.spec.model import Aggregate, Dedupe, Filter, Join, Merge, Route, Select, Sql

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType

    from scribengin.spec.model import Action, Step

DEAD_TYPE = "STRUCT<step: STRING, name: STRING, payload: STRING>"
_GENERATOR = re.compile(r"\b(?:(?:pos|variant_)?explode|inline|stack|json_tuple)(?:_outer)?\s*\(", re.IGNORECASE)
"""functions that make several rows, or none, of one row in a select"""


@dataclass(frozen=True, slots=True)
class NativeFrame:
    """A DataFrame, which of the hidden columns AT, DEAD and MADE_OF it has, and the Spark SQL steps since the last Python stage."""

    df: DataFrame
    at: bool = False
    dead: bool = False
    run: tuple[str, ...] = ()
    fed_by: tuple[str, ...] = ()
    """the nodes whose rows enter this Spark SQL stage"""
    behind: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """(source, the ledger's nodes between it and this Spark SQL stage), for each path"""
    stateful: bool = False
    gated: bool = False
    """True if the stage before has counted late rows: a stateful step may follow"""
    watermarked: bool = False
    """True if the watermark is set in Spark"""
    copied: bool = False
    """True if several rows may have the same AT: it gives a record's place, but does not identify a row"""
    made_of: bool = False

    @property
    def hidden(self) -> list[str]:
        """The names of its hidden columns."""
        return [name for name, there in ((AT, self.at), (DEAD, self.dead), (MADE_OF, self.made_of)) if there]

    def visible(self, *, but: str = "") -> DataFrame:
        """The frame without its hidden columns, except `but`."""
        hidden = [name for name in self.hidden if name != but]
        return self.df.drop(*hidden) if hidden else self.df


@dataclass(frozen=True, slots=True)
class Lane:
    """The rows of one input of a union, `origin`, kept in a frame of its own up to a stateful step, before which each input gets its own
    watermark.

    With several watermarks Spark uses the slowest. If it were set after the union, there would be one only, and the fastest input would
    advance it.
    """

    origin: str
    frame: NativeFrame


def carries_dead(action: Action) -> bool:
    """True if rows that failed a `require` can pass the step unchanged, up to the next Python stage."""
    return isinstance(action, Filter | Select)


def may_drop(action: Action) -> bool:
    """True if a Spark SQL step may return no row for an input row."""
    match action:
        case Select(columns):
            return any(_GENERATOR.search(expression) for _, expression in columns)
        case Join(how=how) | Merge(how=how):
            return how not in ("left", "union")
    return True


def apply(
    spark: SparkSession, step: Step, inputs: Sequence[tuple[str, NativeFrame]], *, stateful: bool, looks_up: bool = False
) -> dict[str, NativeFrame]:
    """Apply a Spark SQL step.

    Args:
        spark: The session.
        step: The step.
        inputs: (id, frame) of each input.
        stateful: True if the step keeps state.
        looks_up: True for a join in which a row of the first input may match several rows of a table.

    Returns:
        The step's own frame under "", those of a route under the names of its branches.
    """
    frames = [frame for _, frame in inputs]
    first = frames[0]
    run, fed_by, behind = _joined(frames)
    run = (*run, step.id)
    kept = replace(first, run=run)
    match _as_meant(spark, step.action):
        case Filter(predicate):
            outs = {"": replace(kept, df=first.df.where(_for_living(first, f"({predicate})", "true")))}
        case Select(columns) as select:
            first = _marked(first) if may_drop(select) else first
            kept = replace(first, run=run)
            expressions = [f"{_for_living(first, f'({expression})', 'NULL')} AS {in_backticks(name)}" for name, expression in columns]
            outs = {"": replace(kept, df=first.df.selectExpr(*expressions, *first.hidden))}
        case Route(cases, otherwise):
            outs = {branch: replace(kept, df=first.df.where(condition)) for branch, condition in _branches(cases, otherwise)}
        case Merge(how="union", origin=origin):
            named = frames if origin is None else [_named(frame, origin, name) for name, frame in inputs]
            outs = {"": replace(side_by_side(named), run=run)}
        case action:
            placed = isinstance(action, Join) and _with_tables(frames)
            frames = [_marked(first), *frames[1:]] if looks_up else frames
            made_of = looks_up and frames[0].made_of
            dfs = [
                frame.df if placed and frame.df.isStreaming else frame.visible(but=MADE_OF if made_of and not index else "")
                for index, frame in enumerate(frames)
            ]
            df = _opaque(spark, action, [(id_, df) for (id_, _), df in zip(inputs, dfs, strict=True)])
            kept_state = stateful or any(frame.stateful for frame in frames)
            out = NativeFrame(df, placed, run=run, fed_by=fed_by, behind=behind, stateful=kept_state, copied=placed, made_of=made_of)
            outs = {"": out}
    if step.require:
        outs = {branch: required(frame, step) for branch, frame in outs.items()}
    return outs


def _marked(frame: NativeFrame) -> NativeFrame:
    """The frame with MADE_OF, if its rows are identified by AT."""
    from pyspark.sql import functions as sql

    if frame.made_of or frame.copied or not frame.at:
        return frame
    return replace(frame, df=frame.df.withColumn(MADE_OF, sql.col(AT)), made_of=True)


def _with_tables(frames: Sequence[NativeFrame]) -> bool:
    """True if one stream of records is joined with tables only: each row then still comes from one record, though a record may give several
    rows."""
    streams = [frame for frame in frames if frame.df.isStreaming]
    return len(streams) == 1 and len(frames) > 1 and streams[0].at and not streams[0].dead


def _as_meant(spark: SparkSession, action: Action) -> Action:
    """The step with the patterns in its SQL texts escaped for Spark's parser."""

    def meant(text: str) -> str:
        return _meant(spark, text)

    def pairs(texts: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
        return tuple((name, meant(text)) for name, text in texts)

    match action:
        case Filter(predicate):
            return Filter(meant(predicate))
        case Select(columns):
            return Select(pairs(columns))
        case Route(cases, otherwise):
            return Route(pairs(cases), otherwise)
        case Sql(text):
            return Sql(meant(text))
        case Aggregate(columns=columns):
            return replace(action, columns=pairs(columns))
    return action


def _meant(spark: SparkSession, text: str) -> str:
    """The text escaped for Spark's parser; unchanged if the session reads all literals as raw."""
    if "\\" not in text or spark.conf.get("spark.sql.parser.escapedStringLiterals") == "true":
        return text
    return escape_patterns(text)


def _joined(frames: Sequence[NativeFrame]) -> tuple[tuple[str, ...], tuple[str, ...], tuple[tuple[str, tuple[str, ...]], ...]]:
    """The (run, fed_by, behind) of all frames together."""
    runs = dict.fromkeys(node for frame in frames for node in frame.run)
    feeders = dict.fromkeys(node for frame in frames for node in frame.fed_by)
    ways = dict.fromkeys(way for frame in frames for way in frame.behind)
    return tuple(runs), tuple(feeders), tuple(ways)


def _for_living(frame: NativeFrame, expression: str, otherwise: str) -> str:
    # CASE, not OR: Spark may evaluate both sides of an OR, and a failed row may raise in the later predicate
    return f"CASE WHEN {DEAD} IS NULL THEN {expression} ELSE {otherwise} END" if frame.dead else expression


def _branches(cases: tuple[tuple[str, str], ...], otherwise: str | None) -> list[tuple[str, str]]:
    before: list[str] = []
    branches: list[tuple[str, str]] = []
    for branch, predicate in cases:
        branches.append((branch, " AND ".join([*before, f"coalesce({predicate}, false)"])))
        before.append(f"NOT coalesce({predicate}, false)")
    return branches if otherwise is None else [*branches, (otherwise, " AND ".join(before))]


def side_by_side(frames: Sequence[NativeFrame]) -> NativeFrame:
    """The union of the frames by column name; a hidden column that a frame does not have is null in its rows."""
    from pyspark.sql import functions as sql

    if len(frames) == 1:
        return frames[0]
    at, dead, made_of = any(f.at for f in frames), any(f.dead for f in frames), any(f.made_of for f in frames)
    aligned = []
    for frame in frames:
        df = frame.df
        if at and not frame.at:
            df = df.withColumn(AT, sql.expr("CAST(NULL AS BIGINT)"))
        if dead and not frame.dead:
            df = df.withColumn(DEAD, sql.expr(f"CAST(NULL AS {DEAD_TYPE})"))
        if made_of and not frame.made_of:
            df = df.withColumn(MADE_OF, sql.expr("CAST(NULL AS BIGINT)"))
        aligned.append(df)
    df = reduce(lambda left, right: left.unionByName(right), aligned)
    ready = all(f.watermarked for f in frames)
    stateful, copied = any(f.stateful for f in frames), any(f.copied for f in frames)
    return NativeFrame(df, at, dead, *_joined(frames), stateful, ready and all(f.gated for f in frames), ready, copied, made_of)


def numbered(df: DataFrame) -> DataFrame:
    """The frame with PART. Spark's function gives the partition number in this frame, not that of the running task."""
    from pyspark.sql import functions as sql

    return df.withColumn(PART, sql.spark_partition_id())


def _named(frame: NativeFrame, column: str, input_: str) -> NativeFrame:
    """The frame with a column that names the input of a union from which its rows come."""
    from pyspark.sql import functions as sql

    return replace(frame, df=frame.df.withColumn(column, sql.expr(literal(flat_name(input_)))))


def union_schema(node: str, inputs: Sequence[tuple[str, Schema]]) -> Schema:
    """The common columns of the node's inputs. A column is NOT NULL if it is so in all inputs. Raises StepError if names or types
    differ."""
    (first_id, first), *others = inputs
    for id_, other in others:
        if {f.name: f.type for f in first.fields} != {f.name: f.type for f in other.fields}:
            raise StepError(
                f'"{node}" reads "{first_id}" ({first}) and "{id_}" ({other}), whose columns differ',
                remedy="give them the same names and types with a select",
                code="union-columns",
                node=node,
            )
    return Schema(tuple(replace(f, nullable=f.nullable or any(other[f.name].nullable for _, other in others)) for f in first.fields))


def required(frame: NativeFrame, step: Step) -> NativeFrame:
    """Mark the rows that fail one of the step's `require` predicates; the next Python stage removes them."""
    from pyspark.sql import functions as sql

    spark = frame.df.sparkSession
    checks = [f"WHEN NOT coalesce({_meant(spark, predicate)}, false) THEN {literal(name)}" for name, predicate in step.require]
    name = f"CASE {' '.join(checks)} END"
    payload = ", ".join(f"{literal(column)}, {in_backticks(column)}" for column in frame.visible().columns)
    failed = (
        f"CASE WHEN ({name}) IS NOT NULL THEN named_struct('step', {literal(step.id)}, 'name', ({name}), "
        f"'payload', to_json(named_struct({payload}))) END"
    )
    if frame.dead:
        failed = f"coalesce({DEAD}, {failed})"
    return replace(frame, df=frame.df.withColumn(DEAD, sql.expr(failed)), dead=True)


def _opaque(spark: SparkSession, action: Action, inputs: Sequence[tuple[str, DataFrame]]) -> DataFrame:
    """Apply a step whose output rows do not come from single source records."""
    frames = [df for _, df in inputs]
    match action:
        case Sql(text):
            for (name, _), df in zip(inputs, frames, strict=True):
                df.createOrReplaceTempView(in_backticks(flat_name(name)))
            branches = {name: flat_name(name) for name, _ in inputs if "." in name}
            return spark.sql(rename_inputs(text, branches) if branches else text)
        case Aggregate():
            return _aggregate(frames[0], action)
        case Join():
            return _join(action, [name for name, _ in inputs], frames)
        case Dedupe(key, time, within_s):
            return _dedupe(frames[0], key, time, within_s)
        case Merge(how="intersect"):
            return reduce(lambda left, right: _intersect(action, left, right), frames)
    raise StepError(f"not a SQL step: {action!r}")


def _aggregate(df: DataFrame, action: Aggregate) -> DataFrame:
    from pyspark.sql import functions as sql

    keys: list[Any] = [sql.col(in_backticks(column)) for column in action.by]
    bounds: list[str] = []
    window = action.window
    if window is not None and window.time_zone != UTC_NAME:
        start, end = "_sg_window_start", "_sg_window_end"
        df = with_local_window(df, time=in_backticks(window.time), size_s=window.size_s, zone=window.time_zone, start=start, end=end)
        keys[:0] = [start, end]
        bounds = [f"{start} AS window_start", f"{end} AS window_end"]
    elif window is not None:
        # checkpoints name the key `window`; a column of that name would conflict with it
        key = "window" if "window" not in (*action.by, *(name for name, _ in action.columns)) else "_sg_window"
        span = sql.window(sql.col(in_backticks(window.time)), f"{window.size_s} seconds", f"{window.slide_s} seconds")
        keys.insert(0, span.alias(key))
        bounds = [f"{key}.start AS window_start", f"{key}.end AS window_end"]
    grouped = df.groupBy(*keys).agg(*[sql.expr(expression).alias(name) for name, expression in action.columns])
    return grouped.selectExpr(*bounds, *map(in_backticks, action.by), *[in_backticks(name) for name, _ in action.columns])


def _join(action: Join, names: Sequence[str], frames: Sequence[DataFrame]) -> DataFrame:
    from pyspark.sql import functions as sql

    left, right = frames[0].alias("l"), frames[1].alias("r")
    condition = reduce(lambda a, b: a & b, [sql.col(f"l.{in_backticks(key)}") == sql.col(f"r.{in_backticks(key)}") for key in action.key])
    times = dict(action.time)
    if action.within_s is not None and times:
        at_left, at_right = sql.col(f"l.{in_backticks(times[names[0]])}"), sql.col(f"r.{in_backticks(times[names[1]])}")
        within = sql.expr(f"INTERVAL {action.within_s} SECONDS")
        condition &= (at_right >= at_left - within) & (at_right <= at_left + within)
    how = {"inner": "inner", "left": "left_outer", "right": "right_outer", "full": "full_outer", "semi": "left_semi"}[action.how]
    joined = left.join(right, condition, how)
    if action.how == "semi":
        return joined.select("l.*")
    keys: list[Column] = []
    for key in action.key:
        match action.how:
            case "right":
                keys.append(sql.col(f"r.{in_backticks(key)}"))
            case "full":
                keys.append(sql.coalesce(sql.col(f"l.{in_backticks(key)}"), sql.col(f"r.{in_backticks(key)}")).alias(key))
            case _:
                keys.append(sql.col(f"l.{in_backticks(key)}"))
    others = [
        sql.col(f"{side}.{in_backticks(column)}")
        for side, df in (("l", frames[0]), ("r", frames[1]))
        for column in df.columns
        if column not in action.key
    ]
    return joined.select(*keys, *others)


def _dedupe(df: DataFrame, key: tuple[str, ...], time: str | None, within_s: float | None) -> DataFrame:
    if not df.isStreaming or time is None or within_s is None:
        return df.dropDuplicates(list(key))
    return df.dropDuplicatesWithinWatermark(list(key))


def _intersect(action: Merge, left: DataFrame, right: DataFrame) -> DataFrame:
    time = action.time or ""
    return _join(Join(action.key, "semi", (("l", time), ("r", time)) if time else (), action.within_s), ("l", "r"), (left, right))


def literal(text: str) -> str:
    """The text as a string literal for Spark's parser."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def schema_of(df: DataFrame, node: str) -> Schema:
    """The frame's columns without hidden ones. Raises StepError for a column whose type has no equivalent in a flow file."""
    return Schema(
        tuple(Field(f.name, _type(f.dataType, f.name, node), f.nullable) for f in df.schema.fields if f.name not in (AT, DEAD, MADE_OF))
    )


def _type(found: DataType, column: str, node: str) -> Type:
    from pyspark.sql import types

    match found:
        case types.DecimalType():
            return Type("DECIMAL", precision=found.precision, scale=found.scale)
        case types.ArrayType():
            return Type("ARRAY", parts=(_type(found.elementType, column, node),))
        case types.MapType():
            return Type("MAP", parts=(_type(found.keyType, column, node), _type(found.valueType, column, node)))
        case types.StructType():
            return Type("STRUCT", fields=tuple(Field(f.name, _type(f.dataType, column, node), f.nullable) for f in found.fields))
    known: dict[type[DataType], str] = {
        types.BooleanType: "BOOLEAN",
        types.ByteType: "TINYINT",
        types.ShortType: "SMALLINT",
        types.IntegerType: "INT",
        types.LongType: "BIGINT",
        types.FloatType: "FLOAT",
        types.DoubleType: "DOUBLE",
        types.StringType: "STRING",
        types.BinaryType: "BINARY",
        types.DateType: "DATE",
        types.TimestampType: "TIMESTAMP",
    }
    if type(found) in known:
        return Type(known[type(found)])
    raise StepError(
        f'step "{node}" returns the column "{column}" with type {found.simpleString()}, which is not supported',
        remedy="cast it in the step, for example CAST(x AS TIMESTAMP) or CAST(x AS STRING)",
    )
