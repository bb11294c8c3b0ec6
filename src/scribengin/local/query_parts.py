"""Everything that a query needs to run in this process: opened sources and sinks, its lineage, and its recovery."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from scribengin.connectors import catalog
from scribengin.connectors.group.contract import chooses
from scribengin.core.errors import Unreachable
from scribengin.core.remote import RemotePath
from scribengin.local.acks import is_released_later
from scribengin.local.ledger import stateful_runs
from scribengin.local.preflight import placing_errors
from scribengin.local.prepare import limits_of, open_sinks, open_sources, source_place, static_streams
from scribengin.plan.key_columns import key_columns
from scribengin.plan.tier_flows import CHANNEL
from scribengin.spark.commit import QueryContext
from scribengin.spark.compile import Compiler
from scribengin.spark.compiled_query import QueryParts
from scribengin.spark.dead_letter_limit import DeadTally
from scribengin.spark.dead_letter_writer import LetterRules
from scribengin.spark.portions import Stager
from scribengin.spark.program import SourceRef
from scribengin.spark.query import QueryRun
from scribengin.state.ledger import Totals, balance, read_totals
from scribengin.state.lineage import finish_rewind, open_lineage
from scribengin.state.publishing import recover_query

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from pyspark.sql import SparkSession
    from structlog.typing import FilteringBoundLogger

    from scribengin.connectors.contract import BatchLimits, SinkConnector, SourceStream
    from scribengin.connectors.contract import SourceConnector as OpenSource
    from scribengin.local.contract import RunSettings
    from scribengin.local.prepare import Prepared
    from scribengin.plan.model import Plan, QueryPlan
    from scribengin.spark.commit import BackPressure, CommittedBatch
    from scribengin.spark.portions import Helpers, Portion
    from scribengin.spark.user_code import UserCode
    from scribengin.spec.model import Evolve, Source, Step
    from scribengin.state.folder import QueryFolder
    from scribengin.state.lease import Lease


@dataclass(frozen=True, slots=True)
class OpenedQuery:
    """A query that is ready to run."""

    spark: SparkSession
    plan: QueryPlan
    parts: QueryParts
    folder: QueryFolder
    lineage: str
    lease: Lease
    limits: Mapping[str, BatchLimits]
    static: Mapping[str, tuple[SourceStream, ...]]
    starts: Mapping[str, int] = field(default_factory=dict)
    first: int = 0
    spark_log: Path | None = None
    """see `QueryContext.spark_log`"""
    published: int = -1
    """see `QueryContext.published`"""

    def make_run(
        self,
        *,
        once: bool,
        stop: threading.Event,
        on_begin: Callable[[Mapping[str, tuple[SourceStream, ...]]], None],
        on_commit: Callable[[CommittedBatch], None],
        log: FilteringBoundLogger,
        fed: Callable[[], bool] = lambda: True,
        all_fed: bool = False,
        pressure: BackPressure | None = None,
        helpers: Helpers | None = None,
    ) -> QueryRun:
        """Create a run of the query in this process.

        Args:
            once: True to end when all data that exists is processed.
            stop: Set to end after the current Batch.
            on_begin: Called with the streams of each Batch before it runs.
            on_commit: Called after each committed Batch.
            log: The log of the run.
            fed: True if nothing will be written any more that the query reads.
            all_fed: True if the query has no other input than from tiers that run at the same time.
            pressure: Decides when the next Batch may begin; None for no limits.
            helpers: The other workers of the tier, which stage a part of its Batches.
        """
        context = QueryContext(
            spark=self.spark,
            parts=self.parts,
            folder=self.folder,
            lineage=self.lineage,
            first=self.first,
            starts=self.starts,
            lease=self.lease,
            limits=self.limits,
            static=self.static,
            stop=stop,
            on_begin=on_begin,
            on_commit=on_commit,
            log=log,
            pressure=pressure,
            helpers=helpers,
            tally=DeadTally(self.plan.sources, self.parts.plan.flow.max_dead, self.plan.static_sources),
            spark_log=self.spark_log,
            published=self.published,
            notes_each=self.spark_log is not None and self._has_channels,
        )
        return QueryRun(context, once, fed, all_fed)

    @property
    def _has_channels(self) -> bool:
        """True if the query reads or writes channels, whose other ends wait until its Batches are published."""
        flow = self.parts.plan.flow
        types = [*(flow.sources[id_].type for id_ in self.plan.sources), *(flow.sinks[id_].type for id_ in self.plan.sinks)]
        return CHANNEL in types

    def totals(self) -> Totals:
        """The counts of the whole lineage."""
        return read_totals(self.folder)

    def balance(self) -> tuple[str, ...]:
        """The violations of the whole lineage, node by node.

        Nodes that keep state are not checked: their balance needs the upstream nodes, which are another flow's for Batches from before an
        edit, and totals do not tell these apart. An audit checks them Batch by Batch.
        """
        return tuple(
            f"query {self.plan.name}: {text}"
            for text in balance(self.totals().nodes, stateful=stateful_runs(self.totals().nodes, self.plan))
        )

    def place_of(self, sink: str) -> str:
        """The place of a sink's rows, as a text."""
        return self.parts.plan.flow.sinks[sink].place


def build_parts(spark: SparkSession, prepared: Prepared, code: UserCode, settings: RunSettings, lease: Lease) -> list[OpenedQuery]:
    """Open every query of a tier, claim the places of its sinks, and recover it. Nothing has started then.

    Args:
        spark: A session, in which Spark has analysed the tier's steps.
        prepared: The tier.
        code: The user's code.
        settings: The settings of the run.
        lease: The lease of the tier.
    """
    plan = prepared.plan
    sources, sinks = open_sources(plan.flow), open_sinks(plan.flow, plan, prepared.folder, settings.kept_elsewhere)
    any_columns = settings.word is not None
    queries = [_open(spark, prepared, query, lease, code, sources, sinks, any_columns=any_columns) for query in plan.queries]
    return [_claimed(opened, prepared, adopt=settings.append_new_lineage) for opened in queries]


def query_parts(
    plan: Plan, query: QueryPlan, folder: QueryFolder, code: UserCode, sources: Mapping[str, OpenSource], sinks: Mapping[str, SinkConnector]
) -> QueryParts:
    """The parts of a query that are the same in all Batches.

    Args:
        plan: The plan of its tier.
        query: The planned query.
        folder: The folder of its state.
        code: The user's code.
        sources: The connectors of the flow's sources.
        sinks: The connectors of the flow's sinks.
    """
    used = [*query.sources, *query.static_sources]
    keys = key_columns(plan.flow)
    refs = {
        id_: SourceRef(
            id_, node.type, replace(catalog.for_tasks(node.type, source_place(plan.flow, id_)), keys=keys[id_]), index, *_evolution(node)
        )
        for index, id_ in enumerate(used)
        for node in (plan.flow.sources[id_],)
    }
    nodes: list[Source | Step] = [*plan.flow.sources.values(), *plan.flow.steps.values()]
    on_error = {node.id: plan.flow.on_error(node) for node in nodes}
    tail = frozenset(node.id for node in query.nodes if node.stage in ("tail", "sink"))
    static = frozenset(query.static_sources)
    rules = LetterRules(folder.dead, query.name, on_error, plan.tier, plan.flow.defaults.trace, tail, static, query.fingerprint)
    schemas = {id_: sources[id_].resolve_schema() for id_ in used}
    return QueryParts(plan, query, code, rules, refs, {sink: sinks[sink] for sink in query.sinks}, schemas)


def _evolution(node: Source) -> tuple[Evolve, tuple[str, ...]]:
    return ("strict", ()) if node.schema is None else (node.schema.evolve, node.schema.learned)


def _open(
    spark: SparkSession,
    prepared: Prepared,
    query: QueryPlan,
    lease: Lease,
    code: UserCode,
    sources: Mapping[str, OpenSource],
    sinks: Mapping[str, SinkConnector],
    *,
    any_columns: bool,
) -> OpenedQuery:
    plan = prepared.plan
    folder = prepared.folder.query(query.name)
    parts = query_parts(plan, query, folder, code, sources, sinks)
    if any_columns:
        refs = {id_: replace(ref, place=replace(ref.place, any_columns=True)) for id_, ref in parts.sources.items()}
        parts = replace(parts, sources=refs)
    parts = replace(parts, released_later=is_released_later(prepared.whole, plan.tier, query))
    return OpenedQuery(
        spark=spark,
        plan=query,
        parts=parts,
        folder=folder,
        lineage="",
        lease=lease,
        limits=limits_by_source(parts),
        static=static_by_source(query, sources),
        spark_log=spark_log_of(prepared, query),
    )


def spark_log_of(prepared: Prepared, query: QueryPlan) -> Path | None:
    """The folder of this machine with Spark's log of a query without state whose state folder is elsewhere; None if Spark's log is a part
    of the state. See docs/decisions/0088-a-query-without-state-needs-no-log-of-spark.md."""
    if query.stateful or not isinstance(prepared.folder.path, RemotePath):
        return None
    return prepared.scratch / "spark-log" / query.name


def limits_by_source(parts: QueryParts) -> dict[str, BatchLimits]:
    """The limits of one Batch for each streaming source."""
    return {id_: limits_of(parts.sources[id_].place.options) for id_ in parts.query.sources}


def static_by_source(query: QueryPlan, sources: Mapping[str, OpenSource]) -> dict[str, tuple[SourceStream, ...]]:
    """The present contents of each static source, which stay the same until the query restarts."""
    return {id_: static_streams(sources[id_]) for id_ in query.static_sources}


def _claimed(opened: OpenedQuery, prepared: Prepared, *, adopt: bool) -> OpenedQuery:
    """Complete an interrupted rewind, open the lineage, claim the sinks' places, and complete what an earlier process has decided."""
    owner = prepared.folder.read_owner()
    finish_rewind(opened.folder)
    lineage = open_lineage(
        opened.folder,
        owner=owner,
        fingerprint=opened.plan.fingerprint,
        state_fingerprint=opened.plan.state_fingerprint,
        sources=opened.plan.sources,
        parts=opened.plan.parts,
        types={sink: prepared.plan.flow.sinks[sink].type for sink in opened.plan.sinks},
    )
    for id_, sink in opened.parts.sinks.items():
        with placing_errors(prepared, id_):
            sink.prepare(owner=owner, lineage=lineage.id, adopt=adopt)
    published = -1
    try:
        newest = recover_query(opened.folder, opened.parts.sinks, lineage=lineage.id, lease=opened.lease)
        published = -1 if newest is None else newest.batch.number
    except Unreachable:
        # a Batch was decided for a member of a group that is unavailable: Spark runs it again, so that it is published when the member is
        # back
        if not any(chooses(sink) for sink in opened.parts.sinks.values()):
            raise
    return replace(opened, lineage=lineage.id, starts=lineage.starts, first=lineage.first, published=published)


def open_stager(spark: SparkSession, tier: Prepared, code: UserCode, settings: RunSettings) -> Stager:
    """A stager for all queries of a tier whose Batches can be shared among workers. Nothing is claimed before the first portion arrives.

    Args:
        spark: A session, in which Spark has analysed the tier's steps.
        tier: The tier, planned with the columns of its channels.
        code: The user's code.
        settings: The settings of a run of the tier.

    Raises:
        ScribenginError: A source or sink cannot be opened.
    """
    plan, owner = tier.plan, tier.folder.read_owner()
    sources, sinks = open_sources(plan.flow), open_sinks(plan.flow, plan, tier.folder, settings.kept_elsewhere)
    compilers = {}
    for query in plan.queries:
        parts = query_parts(plan, query, tier.folder.query(query.name), code, sources, sinks)
        compilers[query.name] = (parts, Compiler(spark.newSession(), parts))
    claimed: dict[str, str] = {}

    def claim(portion: Portion) -> None:
        lineage = portion.inputs.batch.lineage
        for id_, sink in compilers[portion.query][0].sinks.items():
            if claimed.get(id_) != lineage:  # the worker that decides has claimed it already
                sink.prepare(owner=owner, lineage=lineage)
                claimed[id_] = lineage

    return Stager(spark, compilers, claim)
