"""Performs what was decided. Each action may be performed twice; each write names the leader's Term, and compares with what was read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, assert_never

from scribengin.control.actions import Forget, FreeLease, Kill, Note, Start, Tell, Want
from scribengin.control.world import RunId
from scribengin.registry.contract import Delete, Entry
from scribengin.registry.records import put
from scribengin.registry.tree import LEASE, RUN, STATUS, WANTED, own_folders_of_worker

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from scribengin.control.actions import Action
    from scribengin.control.mirror import Mirror
    from scribengin.launch.contract import Launcher, Order
    from scribengin.registry.access import DigestLogin
    from scribengin.registry.contract import Registry, Term
    from scribengin.registry.records import Record, Spot

    Ordering = Callable[[RunId], Order]
    WorkerLogin = Callable[[str, str], DigestLogin | None]


class Actor:
    """The hands of the leading master. `order` makes what a launcher is told of a run."""

    def __init__(self, registry: Registry, mirror: Mirror, launchers: Mapping[str, Launcher], order: Ordering, login: WorkerLogin) -> None:
        self._login = login
        self._owned: set[tuple[str, str]] = set()
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
                self._give_folders(flow, tier, term)
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
            case _:
                assert_never(action)

    def _give_folders(self, flow: str, tier: str, term: Term) -> None:
        """Make the folders that the tier's workers write in, theirs from the start, before the first of them comes."""
        login = None if (flow, tier) in self._owned else self._login(flow, tier)
        if login is not None:
            folders = own_folders_of_worker(flow, tier, login.who)
            if lacking := [folder for folder in folders if self._registry.read(folder.path) is None]:
                self._registry.commit(*lacking, term=term)
        self._owned.add((flow, tier))

    def _write(self, spot: Spot[Any], record: Record, term: Term) -> None:
        self._registry.commit(put(self._registry, spot, record), term=term)
        self._mirror.forget(spot.path)

    def _free(self, id_: RunId, term: Term) -> None:
        path = LEASE(id_.flow, id_.tier).path
        there = self._registry.read(path)
        if isinstance(there, Entry) and there.value.get("run") == id_.number:
            self._registry.commit(Delete(path, there.version), term=term)
        self._mirror.forget(path)
