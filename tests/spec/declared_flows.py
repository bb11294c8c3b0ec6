"""Flows as hypothesis draws them: every kind of node, with texts that are hard to write down."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

from declared_tiers import edges, parts, targets
from hypothesis import strategies as st

from scribengin.core.types import Field, Schema, Type
from scribengin.spec.model import (
    Aggregate,
    Alert,
    Condition,
    Dedupe,
    Defaults,
    EdgeProperties,
    Filter,
    Flow,
    Join,
    MaxDead,
    Measure,
    Merge,
    Parse,
    Python,
    RecordBound,
    Route,
    SchemaSpec,
    Select,
    Sink,
    Source,
    Sql,
    Step,
    Utilities,
    Watermark,
    WindowSpec,
)

if TYPE_CHECKING:
    from collections.abc import Callable

ids = st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True)
texts = st.one_of(
    st.sampled_from(
        [
            "id > 5",
            "a: b",
            "x # y",
            "yes",
            "null",
            "5",
            "${env:X}",
            "$${",
            "{a}",
            "- x",
            "'q'",
            "# x",
            "line\nnext",
            "a\n\n b\n",
            "\\",
            "@",
            "*",
        ]
    ),
    st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\x00"), min_size=1, max_size=20).filter(str.strip),
)
paths = texts.filter(lambda text: not text.startswith("~"))
"""`~NAME` is the home of a person that this machine may not know, which is a mistake"""
columns = st.one_of(ids, texts.filter(lambda text: "`" not in text and len(text.split()) == 1))
durations = st.one_of(st.integers(1, 10**6).map(float), st.integers(1, 10**6).map(lambda ms: ms / 1000), st.floats(0.001, 1e9))
pairs = st.dictionaries(columns, texts, min_size=1, max_size=3).map(lambda found: tuple(found.items()))
names = st.lists(columns, min_size=1, max_size=3, unique=True).map(tuple)
delays = st.none() | durations

primitives = st.sampled_from(["BIGINT", "STRING", "TIMESTAMP", "DOUBLE"]).map(Type)
types = st.one_of(
    primitives,
    primitives.map(lambda part: Type("ARRAY", parts=(part,))),
    st.just(Type("DECIMAL", precision=10, scale=2)),
    primitives.map(lambda part: Type("STRUCT", fields=(Field("x", part, nullable=False),))),
)
schemas = st.lists(
    st.builds(Field, st.one_of(ids, st.sampled_from(["Größe", "two words", "a`b"])), types, st.booleans()),
    min_size=1,
    max_size=4,
    unique_by=lambda field: field.name,
).map(lambda fields: Schema(tuple(fields)))
specs = schemas.map(SchemaSpec)
watermarks = st.builds(Watermark, columns, durations, st.none() | durations, st.none() | durations)
on_error = st.sampled_from([None, "fail", "drop", "dead_letter"])
late = st.sampled_from([None, "dead_letter", "drop", "error"])


@st.composite
def windows(draw: st.DrawFn) -> WindowSpec:
    if draw(st.booleans()):
        size = 3600.0 * draw(st.integers(1, 200))
        return WindowSpec(draw(columns), size, size, draw(st.sampled_from(["UTC", "Asia/Kolkata", "America/Havana"])))
    size = draw(durations)
    return WindowSpec(draw(columns), size, draw(st.sampled_from([size, 0.001])))


@st.composite
def actions(draw: st.DrawFn, inputs: tuple[str, ...]) -> Any:
    timed = draw(st.booleans())
    time, within = (draw(columns), draw(durations)) if timed else (None, None)
    if len(inputs) > 1:
        kinds: list[Callable[[], Any]] = [
            Merge,
            lambda: Merge(origin=draw(columns)),
            lambda: Merge("intersect", draw(names), time, within),
            lambda: Sql(draw(texts)),
        ]
        if len(inputs) == 2:
            sides = tuple((name, draw(columns)) for name in inputs) if timed else ()
            kinds.append(lambda: Join(draw(names), draw(st.sampled_from(["inner", "left", "right", "full", "semi"])), sides, within))
    else:
        branches = draw(st.lists(ids.filter(lambda name: name != "otherwise"), min_size=2, max_size=3, unique=True))
        kinds = [
            lambda: Filter(draw(texts)),
            lambda: Select(draw(pairs)),
            lambda: Sql(draw(texts)),
            lambda: Aggregate(draw(st.just(()) | names), draw(pairs), draw(st.none() | windows())),
            lambda: Parse(draw(columns), "json", draw(schemas), time=draw(st.sampled_from(["exact", "truncate"]))),
            lambda: Parse(
                draw(columns),
                "csv",
                draw(schemas),
                draw(st.sampled_from([",", ";", "\t", " ", "$"])),
                draw(st.just("") | texts.filter(lambda text: not {"\r", "\n"}.intersection(text))),
            ),
            lambda: Route(tuple((name, draw(texts)) for name in branches[1:]), draw(st.sampled_from([None, branches[0]]))),
            lambda: Python("steps:f"),
            lambda: Utilities(("steps:f", "steps:f", "pkg.more:C.g"), draw(st.sampled_from(["fixed", "free"]))),
            lambda: Python("pkg.steps:C.f", tuple(branches), draw(durations)),
            lambda: Dedupe(draw(names), time, within),
        ]
    return draw(st.sampled_from(kinds))()


@st.composite
def steps(draw: st.DrawFn, id_: str, known: list[str]) -> Step:
    inputs = tuple(draw(st.lists(st.sampled_from(known), min_size=1, max_size=3, unique=True)))
    action = draw(actions(inputs))
    return Step(
        id_,
        inputs,
        action,
        draw(st.just(()) | pairs),
        draw(on_error),
        draw(st.sampled_from(["append", "update", "complete"])) if isinstance(action, (Aggregate, Sql, Python)) else "append",
        draw(st.none() | watermarks),
        draw(st.none() | specs) if isinstance(action, Python) else None,
        draw(st.sampled_from([None, "dead_letter", "drop", "error"]))
        if isinstance(action, (Aggregate, Sql, Dedupe, Join, Merge))
        else None,
    )


@st.composite
def sources(draw: st.DrawFn, id_: str) -> Source:
    files = {"path": draw(paths), "format": draw(st.sampled_from(["json", "csv", "text", "parquet"]))}
    more = {
        "max_files": st.integers(1, 10**9),
        "max_bytes": st.integers(1, 2**50),
        "growing": st.booleans(),
        "settle": st.sampled_from([0.0]) | durations,
        "null": st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\x00\r\n"), max_size=5),
    }
    files |= {name: draw(value) for name, value in more.items() if draw(st.booleans())}
    type_, options = draw(st.sampled_from([("files", files), ("sequence", {"rows": 5})]))
    return Source(id_, type_, options, draw(st.none() | specs), draw(st.none() | watermarks), draw(st.booleans()), draw(on_error))


@st.composite
def sinks(draw: st.DrawFn, id_: str, known: list[str]) -> Sink:
    options: dict[str, Any] = {"path": draw(paths), "format": "json"}
    if draw(st.booleans()):
        options["partition_by"] = draw(names)
    return Sink(
        id_,
        tuple(draw(st.lists(st.sampled_from(known), min_size=1, max_size=2, unique=True))),
        "files",
        options,
        draw(st.none() | ids),
        draw(delays),
        draw(st.sampled_from([None, "exactly_once", "at_least_once"])),
        draw(st.none() | targets),
    )


@st.composite
def alerts(draw: st.DrawFn) -> Alert:
    measure = draw(st.sampled_from(get_args(Measure)))
    spans = durations.filter(lambda s: 1.0 <= s <= 14 * 86400.0)
    over = 0.0 if measure in ("progress", "agent") else draw(spans) if measure == "lag_s" else float(draw(st.integers(0, 10**9)))
    condition = Condition(measure, over, draw(spans))
    return Alert(draw(ids), condition, draw(st.sampled_from(["", "https://a.example/b"])), tuple(draw(st.lists(texts, max_size=2))))


@st.composite
def max_dead(draw: st.DrawFn) -> MaxDead:
    bounds = st.builds(RecordBound, percent=st.floats(0, 100)) | st.builds(RecordBound, records=st.integers(0, 10**12))
    batch, run = draw(st.tuples(bounds, st.none() | bounds) | st.tuples(st.none(), bounds))
    return MaxDead(batch, run, draw(st.sampled_from(["fail", "degrade"])))


@st.composite
def flows(draw: st.DrawFn) -> Flow:
    """A flow that the parser takes: its graph may be nonsense, its keys are right."""
    names_ = draw(st.lists(ids, min_size=3, max_size=7, unique=True))
    cut = draw(st.integers(1, len(names_) - 2))
    source_ids, step_ids, sink_ids = names_[:cut], names_[cut:-1], names_[-1:]
    known = [*source_ids, *step_ids, "some.branch"]
    default = draw(st.just(EdgeProperties()) | edges())
    return Flow(
        draw(ids),
        {id_: draw(sources(id_)) for id_ in source_ids},
        {id_: draw(steps(id_, known)) for id_ in step_ids},
        {id_: draw(sinks(id_, known)) for id_ in sink_ids},
        draw(st.just("") | texts),
        draw(
            st.builds(
                Defaults,
                trigger_s=st.just(0.0) | durations,
                retain_s=st.none() | durations.filter(lambda s: s >= 1.0),
                retain_bytes=st.none() | st.integers(1, 2**40),
                on_error=st.sampled_from(["fail", "dead_letter"]),
                edge=st.just(default),
                trace=st.sampled_from([0.0, 1.0]) | st.floats(0, 1),
            )
        ),
        **draw(parts(names_, default)),
        max_delay_s=draw(st.none() | durations.filter(lambda s: s >= 1.0)),
        max_dead=draw(st.none() | max_dead()),
        alerts={alert.id: alert for alert in draw(st.lists(alerts(), max_size=2))},
    )
