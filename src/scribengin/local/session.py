"""The Spark session of a flow on this machine."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from scribengin.connectors.abilities import masks, spark_writes
from scribengin.core.errors import SinkError
from scribengin.core.remote import RemotePath
from scribengin.embedded.jars import fetch
from scribengin.local.prepare import open_sinks
from scribengin.spark.session import redactions
from scribengin.spark.shared_session import begin_session
from scribengin.spec.model import Resources

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import SparkSession

    from scribengin.local.contract import RunSettings
    from scribengin.local.prepare import PreparedFlow
    from scribengin.spark.session import SparkStart
    from scribengin.spark.shared_session import LentStart


def begin(
    flows: Sequence[PreparedFlow], settings: RunSettings, tell: Callable[[str], None] | None = None, *, lasting: bool = False
) -> SparkStart | LentStart:
    """Begin a Spark session for the flows; its Java boots from now on. Its scratch files and its log are in the folder of the first tier.

    Args:
        flows: The flows that run in it.
        settings: The settings of the run; their master and memory take precedence over those of a tier.
        tell: Receives a text about each thing that takes minutes. If it is given, the session can also write: it has the jars that Spark's
            own sinks need, and those with which Spark reaches a state in another file system.
        lasting: True if other versions of the flow, whose plans are not known yet, may run in the session later.

    Raises:
        EnvironmentFault: Spark does not start, or its jars are not available.
        SinkError: One of Spark's own sinks does not have a setting.
    """
    tiers = [tier for flow in flows for tier in flow.tiers]
    conf, by_spark = ({}, False) if tell is None else _to_write(flows, settings.spark_conf, tell)
    resources = _resources(flows)
    master, memory = _given(resources, settings)
    in_jvm = by_spark or any(node.stage == "native" for tier in tiers for query in tier.plan.queries for node in query.placed)
    return begin_session(
        "+".join(flow.name for flow in flows),
        master=master,
        memory=memory,
        conf={**resources.spark, **settings.spark_conf, **conf},
        folder=tiers[0].scratch,
        plans_only=tell is None or not (in_jvm or lasting),
    )


def start(
    flows: Sequence[PreparedFlow], settings: RunSettings, tell: Callable[[str], None] | None = None, *, lasting: bool = False
) -> SparkSession:
    """Begin a session and wait for it; see `begin` for the arguments."""
    with closing(begin(flows, settings, tell, lasting=lasting)) as begun:
        return begun.session()


def _resources(flows: Sequence[PreparedFlow]) -> Resources:
    """The resources of the tier, if it runs alone. Tiers that run together share the machine."""
    tiers = [tier for flow in flows for tier in flow.tiers]
    declared = flows[0].plan.flow.tiers.get(tiers[0].plan.tier) if len(tiers) == 1 else None
    return Resources() if declared is None else declared.resources


def _given(resources: Resources, settings: RunSettings) -> tuple[str, str]:
    """(Spark's master, heap): from the settings of the run, otherwise from the resources of the tier."""
    master = settings.master or (f"local[{resources.cores},3]" if resources.cores else "")
    here = not master or master.startswith("local")  # otherwise it is the memory of the executors, which the launcher has requested
    memory = settings.memory or (f"{max(1, resources.memory // 2**20)}m" if resources.memory and here else "")
    return master, memory


def _to_write(flows: Sequence[PreparedFlow], given: Mapping[str, str], tell: Callable[[str], None]) -> tuple[dict[str, str], bool]:
    """(settings for Spark's own sinks and for checkpoints, True if Spark itself writes for any sink)"""
    jars: list[str] = []
    names: set[str] = set()
    redacted: set[str] = set()
    written = False
    for tier in [tier for flow in flows for tier in flow.tiers]:
        state = tier.folder.path
        if isinstance(state, RemotePath):
            jars += [str(jar) for name in state.jars for jar in fetch(name, tell)]
        for id_, sink in open_sinks(tier.plan.flow).items():
            redacted.update(sink.redacted if masks(sink) else ())
            if spark_writes(sink):
                written = True
                try:
                    names |= sink.spark_options().keys()
                except SinkError as error:
                    error.place = tier.place_of(id_)
                    raise
                jars += [str(jar) for jar in fetch(sink.jars, tell)]
    conf = redactions(names | redacted, given) if names or redacted else {}
    if jars:
        conf["spark.jars"] = ",".join(dict.fromkeys([*filter(None, given.get("spark.jars", "").split(",")), *jars]))
    return conf, written
