"""What a launcher is told of a run, as far as the registry says it: the worker's name and what it may use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scribengin.launch.contract import LaunchOrder
from scribengin.registry.kinds import TierSpec, spec_of
from scribengin.registry.records import Stored, read_record
from scribengin.registry.tree import SPEC, WANTED

if TYPE_CHECKING:
    from scribengin.control.act import Ordering
    from scribengin.control.world import RunId
    from scribengin.registry.contract import Registry


def ordering(registry: Registry) -> Ordering:
    """The command of its orders is only the worker's name: the host that starts it makes a real one (`hosts/node.py`)."""

    def order(id_: RunId) -> LaunchOrder:
        spec = tier_spec(registry, id_)
        return LaunchOrder(str(id_), (str(id_),), cores=spec.cores, memory_bytes=spec.memory_bytes, executors=spec.executors)

    return order


def tier_spec(registry: Registry, id_: RunId) -> TierSpec:
    """Of the version that the tier is wanted in; what nobody has said is Spark's default."""
    wish = read_record(registry, WANTED(id_.flow, id_.tier))
    spec = read_record(registry, SPEC(id_.flow, str(wish.record.version))) if isinstance(wish, Stored) else None
    return (spec_of(spec.record, id_.tier) if isinstance(spec, Stored) else None) or TierSpec()
