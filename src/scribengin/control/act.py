"""Performs what was decided. Each action may be performed twice; each write names the leader's Term, and compares with what was read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, assert_never

from scribengin.control.actions import Forget, FreeLease, Kill, Note, Start, Step, Tell, Want
from scribengin.control.world import RunId
from scribengin.registry.contract import Delete, Entry
from scribengin.registry.records import put
from scribengin.registry.tree import LEASE, OPERATION, RUN, STATUS, WANTED

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from scribengin.control.actions import Action
    from scribengin.control.mirror import Mirror
    from scribengin.launch.contract import Launcher, Order
    from scribengin.registry.contract import Registry, Term
    from scribengin.registry.records import Record, Spot

    Ordering = Callable[[RunId], Order]


class Actor:
    """The hands of the leading master. `order` makes what a launcher is told of a run."""

    def __init__(self, registry: Registry, mirror: Mirror, launchers: Mapping[str, Launcher], order: Ordering) -> None:
        self._registry = registry
        self._mirror = mirror
        self._launchers = launchers
        self._order = order

    def perform(self, action: Action, term: Term) -> None:
        """Raises FencedError where the Term is over, Conflict where somebody else was faster, Unreachable and EnvironmentFault as
        registry and launcher do; the next look decides again."""
        match action:
            case Want(flow, tier, wish):
                self._write(WANTED(flow, tier), wish, term)
            case Start(flow, tier, run):
                id_ = RunId(flow, tier, run.number)
                self._write(RUN(flow, tier), run, term)
                self._launchers[run.node].start(self._order(id_))
            case Note(flow, tier, run):
                self._write(RUN(flow, tier), run, term)
            case FreeLease(id_):
                self._free(id_, term)
            case Kill(id_, node):
                self._launchers[node].kill(str(id_))
            case Forget(id_, node):
                self._launchers[node].forget(str(id_))
            case Tell(flow, status):
                self._write(STATUS(flow), status, term)
            case Step(flow, id_, operation):
                self._write(OPERATION(flow, id_), operation, term)
            case _:
                assert_never(action)

    def _write(self, spot: Spot[Any], record: Record, term: Term) -> None:
        self._registry.commit(put(self._registry, spot, record), term=term)
        self._mirror.forget(spot.path)

    def _free(self, id_: RunId, term: Term) -> None:
        path = LEASE(id_.flow, id_.tier).path
        there = self._registry.read(path)
        if isinstance(there, Entry) and there.value.get("run") == id_.number:
            self._registry.commit(Delete(path, there.version), term=term)
        self._mirror.forget(path)
