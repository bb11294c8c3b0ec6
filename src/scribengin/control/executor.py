"""Performs decided actions. Each may be performed twice; each write names the leader's Term, and compares with what was read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, assert_never

from scribengin.control.attempts import with_attempt
from scribengin.control.resources import autoscaled
from scribengin.control.world import (
    Advance,
    Allot,
    Ask,
    Forget,
    FreeLease,
    Hide,
    HoldBack,
    Kill,
    NameGroup,
    Note,
    NoteSizes,
    OperationStep,
    RunId,
    ScaleTier,
    SetAside,
    SetWorkerGoal,
    Show,
    Start,
    Tell,
    Writing,
    flow_of,
)
from scribengin.core.errors import FencedError, Refused, ScribenginError
from scribengin.launch.contract import LaunchOrder
from scribengin.registry.contract import Conflict, Damaged, Delete, RegistryEntry
from scribengin.registry.record_io import Newer, Stored, read_record, set_aside
from scribengin.registry.records import Attempts, ChangeHistory, StateChange, TierSpec, spec_of
from scribengin.registry.tree import (
    ATTEMPTS,
    AUTOSCALE,
    CHANGES,
    DESIRED,
    HELD_BACK,
    HOSTED,
    LEASE,
    NODE_GROUP,
    OPERATION,
    RUN,
    SHARE,
    SPARE,
    SPEC,
    STATUS,
    WANTED,
    WORKFLOW_OPERATION,
    own_folders_of_worker,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from scribengin.control.registry_cache import Mirror
    from scribengin.control.world import Action
    from scribengin.launch.contract import Launcher
    from scribengin.registry.access import DigestLogin
    from scribengin.registry.contract import Registry, Term, Write
    from scribengin.registry.record_io import Record, Spot

    Ordering = Callable[[RunId], LaunchOrder]
    WorkerLogin = Callable[[str, str], DigestLogin | None]
    _Group = tuple[list[Write], list[Action]]
    """the writes of one flow, and its actions that need more than a write"""


# The launcher's order for a run, as far as the registry has it: the worker's name and its resources.


def ordering(registry: Registry) -> Ordering:
    """Returns a function that makes the order for a run. The command in it is only the worker's name: the host that starts the worker makes
    the real one (`hosts/node.py`)."""

    def order(id_: RunId) -> LaunchOrder:
        spec = tier_spec(registry, id_)
        return LaunchOrder(
            str(id_), (str(id_),), cores=spec.cores, memory_bytes=spec.memory_bytes, executors=spec.executors, spark=spec.spark
        )

    return order


def tier_spec(registry: Registry, id_: RunId) -> TierSpec:
    """The settings in the tier's desired version; unset values are Spark's defaults."""
    wish = read_record(registry, WANTED(id_.flow, id_.tier))
    spec = read_record(registry, SPEC(id_.flow, str(wish.record.version))) if isinstance(wish, Stored) else None
    return (spec_of(spec.record, id_.tier) if isinstance(spec, Stored) else None) or TierSpec()


_CHANGES, _REASON = 50, 300
"""limits of a flow's history: changes of state; characters of a reason"""
_WRITES = 1_000
"""approximate limit of writes in one commit: far below ZooKeeper's limit, and other requests are answered between commits"""


class Actor:
    """Performs the actions of the leading master. `order` makes the launcher's order for a run."""

    def __init__(self, registry: Registry, mirror: Mirror, launchers: Mapping[str, Launcher], order: Ordering, login: WorkerLogin) -> None:
        self._login = login
        self._registry = registry
        self._mirror = mirror
        self._launchers = launchers
        self._order = order

    def perform(self, action: Action, term: Term) -> None:
        """Perform one action. Raises FencedError if the Term has ended, Conflict if another client wrote first, Unreachable and
        EnvironmentFault as registry and launcher do; the next cycle decides again."""
        match action:
            case (
                SetWorkerGoal()
                | Note()
                | Tell()
                | OperationStep()
                | Ask()
                | Advance()
                | Allot()
                | HoldBack()
                | NoteSizes()
                | NameGroup()
                | Show()
                | Hide()
            ):
                self._commit(self._writes(action), term)
            case Start():
                self._commit(self._writes(action), term)
                self._launch(action, term)
            case FreeLease(id_):
                self._free(id_, term)
            case Kill(id_, node):
                self._launchers[node].kill(str(id_))
            case Forget(id_, node):
                self._launchers[node].forget(str(id_))
            case SetAside(_, spot):
                self._set_aside(spot, term)
            case ScaleTier(flow):
                if writes := autoscaled(self._registry, action):
                    self._commit([*writes, self._mirror.put(AUTOSCALE(flow), action.sizes)], term)
            case _:
                assert_never(action)

    def perform_all(self, actions: Sequence[Action], term: Term, check: Callable[[], None]) -> Iterator[ScribenginError]:
        """Perform all actions in few commits: for each flow first its writes, in one step; if another client wrote first, nothing is done
        for that flow. `check` raises if this master no longer leads. Returns the errors of single flows or workers. Raises FencedError, and
        Unreachable if the registry does not answer."""
        tried = {action.flow for action in actions if isinstance(action, Start | Note) and not action.spare}
        self._mirror.fetch(
            [*(CHANGES(action.flow).path for action in actions if isinstance(action, Tell)), *(ATTEMPTS(f).path for f in tried)]
        )
        groups: dict[str, list[Action]] = {}
        for action in actions:
            groups.setdefault(flow_of(action), []).append(action)
        ready: list[_Group] = []
        for group in groups.values():
            try:
                ready.append(self._prepared(group))
            except Refused as error:
                yield error
                continue
            if sum(len(writes) for writes, _ in ready) >= _WRITES:
                yield from self._perform(ready, term, check)
                ready = []
        yield from self._perform(ready, term, check)

    def _prepared(self, actions: Sequence[Action]) -> _Group:
        writes: dict[str, Write] = {}
        for action in actions:
            if isinstance(action, Start | Writing):
                writes |= {write.path: write for write in self._writes(action)}
                if isinstance(action, Tell):
                    writes |= self._remembered(action)
        writes |= self._tried([action for action in actions if isinstance(action, Start | Note) and not action.spare])
        return list(writes.values()), [action for action in actions if not isinstance(action, Writing)]

    def _remembered(self, action: Tell) -> dict[str, Write]:
        """The write that adds a flow's change of state to its history. An invalid record is replaced."""
        spot, status = CHANGES(action.flow), action.status
        before, told = self._mirror.stored(STATUS(action.flow)), self._mirror.stored(spot)
        if isinstance(before, Stored) and before.record.state == status.state:
            return {}
        if isinstance(told, Newer):
            return {}
        last = told.record.last if isinstance(told, Stored) else ()
        reason = status.reason if len(status.reason) <= _REASON else f"{status.reason[: _REASON - 1]}…"
        change = StateChange(at=status.since, state=status.state, reason=reason, version=status.version, goal=status.goal)
        return {spot.path: self._mirror.put(spot, ChangeHistory(last=(*last, change)[-_CHANGES:]))}

    def _tried(self, actions: Sequence[Start | Note]) -> dict[str, Write]:
        """The write that adds the runs of a flow to its attempts. An invalid record is replaced."""
        if not actions:
            return {}
        spot = ATTEMPTS(actions[0].flow)
        told = self._mirror.stored(spot)
        if isinstance(told, Newer):
            return {}
        before = after = told.record if isinstance(told, Stored) else Attempts()
        for action in actions:
            lease = self._mirror.read(LEASE(action.flow, action.tier).path)
            after = with_attempt(after, action.tier, action.run, lease.value if isinstance(lease, RegistryEntry) else {})
        return {} if after == before else {spot.path: self._mirror.put(spot, after)}

    def _perform(self, groups: Sequence[_Group], term: Term, check: Callable[[], None]) -> Iterator[ScribenginError]:
        check()
        try:
            self._commit([write for writes, _ in groups for write in writes], term)
        except (Conflict, Refused) as error:
            if len(groups) == 1:
                yield error
                return
            middle = len(groups) // 2  # which flow caused it is found by halving
            yield from self._perform(groups[:middle], term, check)
            yield from self._perform(groups[middle:], term, check)
            return
        for _, actions in groups:
            for action in actions:
                check()
                try:
                    if isinstance(action, Start):
                        self._launch(action, term)
                    else:
                        self.perform(action, term)
                except FencedError:
                    raise
                except ScribenginError as error:  # a launcher that does not answer does not stop the others
                    yield error

    def _commit(self, writes: Sequence[Write], term: Term) -> None:
        if not writes:
            return
        try:
            self._registry.commit(*writes, term=term)
        finally:
            for write in writes:
                self._mirror.forget(write.path)

    def _launch(self, action: Start, term: Term) -> None:
        self._give_folders(action.flow, action.tier, term)
        self._launchers[action.run.node].start(self._order(RunId(action.flow, action.tier, action.run.number)))

    def _give_folders(self, flow: str, tier: str, term: Term) -> None:
        """Create the folders that the tier's workers write, with the workers as owners, before the first worker starts."""
        if (login := self._login(flow, tier)) is not None:
            folders = own_folders_of_worker(flow, tier, login.who)
            self._commit([folder for folder in folders if self._mirror.read(folder.path) is None], term)

    def _writes(self, action: Start | Writing) -> list[Write]:
        spot, record = _written(action)
        if record is not None:
            return [self._mirror.put(spot, record)]
        there = self._mirror.read(spot.path)
        return [] if there is None else [Delete(spot.path, there.version)]

    def _set_aside(self, spot: Spot[Any], term: Term) -> None:
        found = read_record(self._registry, spot)
        self._mirror.forget(spot.path)
        if isinstance(found, Damaged):
            set_aside(self._registry, found, term=term)

    def _free(self, id_: RunId, term: Term) -> None:
        path = LEASE(id_.flow, id_.tier).path
        there = self._registry.read(path)
        if isinstance(there, RegistryEntry) and there.value.get("run") == id_.number:
            self._registry.commit(Delete(path, there.version), term=term)
        self._mirror.forget(path)


def _written(action: Start | Writing) -> tuple[Spot[Any], Record | None]:
    """The path and the record that the action writes; None: it removes the record."""
    match action:
        case SetWorkerGoal(flow, tier, wish):
            return WANTED(flow, tier), wish
        case Start(flow, tier, run, spare) | Note(flow, tier, run, spare):
            return (SPARE if spare else RUN)(flow, tier), run
        case Tell(flow, status):
            return STATUS(flow), status
        case OperationStep(flow, id_, operation):
            return OPERATION(flow, id_), operation
        case Ask(flow, _, wanted):
            return DESIRED(flow), wanted
        case Advance(id_, reached):
            return WORKFLOW_OPERATION(id_), reached
        case Allot(flow, share):
            return SHARE(flow), share
        case HoldBack(flow, held_back):
            return HELD_BACK(flow), held_back
        case NoteSizes(flow, sizes):
            return AUTOSCALE(flow), sizes
        case NameGroup(flow, tier, name):
            return NODE_GROUP(f"{flow}.{tier}"), name
        case Show(_, node, worker, hosted):
            return HOSTED(node, worker), hosted
        case Hide(_, node, worker):
            return HOSTED(node, worker), None
