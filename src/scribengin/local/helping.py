"""What a worker needs that stages portions of Batches without holding the lease: the Queries compiled, their sinks ready to write."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scribengin.local.parts import query_parts
from scribengin.local.prepare import open_sinks, open_sources
from scribengin.spark.compile import Compiler
from scribengin.spark.portions import Portion, Stager

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from scribengin.local.contract import RunSettings
    from scribengin.local.prepare import Prepared
    from scribengin.spark.user_code import UserCode


def open_stager(spark: SparkSession, tier: Prepared, code: UserCode, settings: RunSettings) -> Stager:
    """Of all Queries of the tier whose Batches can be shared; nothing is claimed before the first portion comes.

    Args:
        spark: a session; Spark has analysed the tier's steps in it.
        tier: planned with what Spark has said of its channels.
        code: the flow's own.
        settings: those of a run of the tier.

    Raises:
        ScribenginError: a source or sink that cannot be opened.
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
            if claimed.get(id_) != lineage:  # the claim is there: whoever decides has made it
                sink.prepare(owner=owner, lineage=lineage)
                claimed[id_] = lineage

    return Stager(spark, compilers, claim)
