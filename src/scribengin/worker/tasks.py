"""A tier's part of an operation, which its worker does under its lease. It is idempotent: repeating it, completely or after a kill, has the
effect of one execution."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from scribengin.core.errors import Refused
from scribengin.local.move_queries import migrate
from scribengin.local.positions import decided_ends, go_back, move_forward
from scribengin.local.prepare import prepare
from scribengin.local.rewind import begin_new_lineage
from scribengin.registry.record_io import Stored, read_record
from scribengin.registry.records import UNDER_WAY
from scribengin.registry.tree import OPERATION, SPEC
from scribengin.spark.offset_log import state_partitions
from scribengin.spark.repartition import repartition
from scribengin.state.folder import StateFolder
from scribengin.state.lease import take_lease
from scribengin.state.lineage import finish_rewind, read_lineage
from scribengin.state.places import located

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from scribengin.control.world import RunId
    from scribengin.local.prepare import Prepared
    from scribengin.packages.fetch import FetchedPackages
    from scribengin.registry.contract import Registry
    from scribengin.registry.records import Operation, Spec
    from scribengin.state.folder import QueryFolder
    from scribengin.state.lease import Lease, Right


class Tasks:
    """Does one worker's parts of operations. Called with an operation's id.

    Args:
        registry: where operations are.
        id_: the run of the worker.
        spec: the version that the worker has loaded.
        packages: the packages of this host, and those of masters.
        right: the tier's lease.
        session: returns the Spark session.
    """

    def __init__(
        self,
        registry: Registry,
        id_: RunId,
        spec: Spec,
        packages: FetchedPackages,
        right: Right,
        session: Callable[[], SparkSession],
    ) -> None:
        self._registry = registry
        self._id = id_
        self._spec = spec
        self._packages = packages
        self._right = right
        self._session = session

    def take(self, spec: Spec) -> None:
        """Use that version from now on."""
        self._spec = spec

    def __call__(self, operation_id: str) -> None:
        """Do the tier's part of an operation. Raises Refused if that is impossible, with nothing changed; Unreachable for a passing
        error."""
        stored = read_record(self._registry, OPERATION(self._id.flow, operation_id))
        if not isinstance(stored, Stored) or stored.record.step not in UNDER_WAY:
            raise Refused(f"operation {operation_id} is not under way", remedy="start it again", code="operation-over")
        if stored.record.kind == "recut":
            self._recut(int(stored.record.arguments["version"]))
            return
        path = self._packages.get(self._spec.package) / self._spec.path
        prepared = prepare(path, state=located(self._spec.state), tier=self._id.tier, base=Path(self._spec.base))
        (tier,) = prepared.tiers
        with take_lease(tier.folder, right=self._right) as lease:
            self._perform(tier, stored.record, lease)

    def _recut(self, version: int) -> None:
        """Move queries to their places in the next version. Only that version's code is loaded: this process has not run the version
        before."""
        stored = read_record(self._registry, SPEC(self._id.flow, str(version)))
        if not isinstance(stored, Stored):
            raise Refused(f"version {version} of flow {self._id.flow} does not exist", remedy="apply it again", code="version-unknown")
        spec = stored.record
        comes = prepare(self._packages.get(spec.package) / spec.path, state=located(spec.state), base=Path(spec.base))
        with take_lease(StateFolder(comes.root, comes.name, self._id.tier), right=self._right) as lease:
            migrate(comes, {self._id.tier: lease})

    def _perform(self, tier: Prepared, operation: Operation, lease: Lease) -> None:
        arguments = operation.arguments
        for folder in tier.folder.queries():
            finish_rewind(folder)
        match operation.kind:
            case "offsets" | "rewind":
                for name, query, positions in arguments["moves"]:
                    if name == self._id.tier:
                        lease.check()
                        _move(tier, tier.folder.query(query), positions, lease)
            case "renew":
                for name, query in arguments["queries"]:
                    if name == self._id.tier:
                        lease.check()
                        begin_new_lineage(tier, tier.folder.query(query), str(arguments["how"]), lease)
            case "repartition":
                for folder in tier.folder.queries():
                    if state_partitions(folder) is not None:
                        repartition(self._session(), folder, int(arguments["partitions"]), lease)


def _move(tier: Prepared, folder: QueryFolder, positions: dict[str, Any], lease: Lease) -> None:
    """Set the positions of a query's sources; None is the end of the available data. Positions that are correct already are left
    unchanged."""
    if read_lineage(folder) is None:
        raise Refused(f'query "{folder.name}" has never run', remedy="run it first", code="state-missing")
    ends = decided_ends(folder)
    back = {source: to for source, to in positions.items() if to is not None and to < ends.get(source, 0)}
    if back:
        go_back(tier, folder, {**ends, **back}, lease)
    for source, to in positions.items():
        if source not in back and (to is None or to > ends.get(source, 0)):
            move_forward(tier.plan.flow, folder, source, to)
