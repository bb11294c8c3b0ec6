"""The compiled Flow as a value. `plan.build` makes it from a checked Flow; `spark.compile` runs it; `explain` prints it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scribengin.core.types import Schema
    from scribengin.spec.model import Flow

Stage = Literal["read", "decode", "native", "vector", "python", "tail", "sink"]
"""Where a node runs. "tail" is the task pipeline, the pass in the Python worker.

`read`: its blocks are read and decoded in the task pipeline. `decode`: read and decoded by a stage before Spark SQL steps. `native`: Spark
SQL. `python`: Python steps before Spark SQL steps. `tail`: Python steps in one pass with the sink's writes. `vector`: SQL in that pass, by
Arrow's kernels. `sink`: always in the task pipeline.
"""


@dataclass(frozen=True, slots=True)
class PlannedNode:
    """A node of one query. `inputs` may be `step.branch`; `schema` has its output columns, if known without Spark."""

    id: str
    stage: Stage
    inputs: tuple[str, ...]
    stateful: bool = False
    schema: Schema | None = None


@dataclass(frozen=True, slots=True)
class PathGuarantee:
    """The guarantee from one source to one sink, with its reason."""

    source: str
    sink: str
    guarantee: Literal["exactly once", "at least once", "at most once", "view"]
    reason: str


@dataclass(frozen=True, slots=True)
class QueryPlan:
    """One sink, or several that commit together, and everything upstream. `nodes` are in topological order."""

    name: str
    nodes: tuple[PlannedNode, ...]
    sinks: tuple[str, ...]
    sources: tuple[str, ...]
    """ids of the streaming sources, sorted: only these have positions"""
    static_sources: tuple[str, ...]
    trigger_s: float
    unit: Literal["whole batch"]
    unit_reason: str
    fingerprint: str
    """changes if anything changes that a Batch's rows depend on"""
    state_fingerprint: str
    """changes if a stateful step, or anything upstream of it, changes; empty for a stateless query"""
    guarantees: tuple[PathGuarantee, ...] = ()
    parts: Mapping[str, str] = field(default_factory=dict)
    """node → fingerprint of its own definition, by which `diff` finds the nodes that changed"""
    in_tail: tuple[PlannedNode, ...] = ()
    """the nodes with their stages if the vector engine runs SQL steps in the task pipeline; empty if it runs none. `nodes` has the stages
    if Spark runs these steps, which it does when the engine is not sure"""
    by_spark: Mapping[str, str] = field(default_factory=dict)
    """Spark SQL step → the reason that Spark runs it in any case"""

    @property
    def placed(self) -> tuple[PlannedNode, ...]:
        """The nodes with their stages in the normal case."""
        return self.in_tail or self.nodes

    @property
    def stateful(self) -> bool:
        """True if Spark keeps state between Batches."""
        return bool(self.state_fingerprint)

    def guarantee_of(self, sink: str) -> str:
        """The weakest guarantee of the sink's paths; empty if it has no streaming source."""
        found = {path.guarantee for path in self.guarantees if path.sink == sink}
        return next((each for each in ("view", "at least once", "exactly once") if each in found), "")

    def node(self, id_: str) -> PlannedNode:
        """The node of that id (or of the id before the dot). Raises KeyError if the query has none."""
        name = id_.partition(".")[0]
        for node in self.nodes:
            if node.id == name:
                return node
        raise KeyError(id_)


@dataclass(frozen=True, slots=True)
class Plan:
    """A Flow and its queries; a flow without tiers has one tier, `main`."""

    flow: Flow
    queries: tuple[QueryPlan, ...]
    tier: str = "main"
    hints: tuple[str, ...] = ()
    """sentences such as: queries kept and counts read tweets twice; `together:` would read it once"""
    schemas: Mapping[str, Schema] = field(default_factory=dict)
    """node → columns, if known without Spark"""
