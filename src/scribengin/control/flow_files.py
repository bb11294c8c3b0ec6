"""Flow files that people write into the registry, `flows/<flow>/file`: each text is applied once, as `apply` applies a file, or refused.

The applied text is recorded in `taken`, by the same commit that makes the version: so a master that is killed in between, or its successor,
neither loses a text nor applies one twice, and a version that a command makes afterwards stays. A refused text is recorded there too, and
shown in the flow's status until the text changes.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from scribengin.control.record_validation import refusal
from scribengin.control.topology import check_agreed, write_topology
from scribengin.core.errors import EnvironmentFault, FencedError, InputError, Refused, ScribenginError, Unreachable
from scribengin.core.time_text import now_text
from scribengin.registry.contract import RECORD_BYTES, Conflict, Damaged, Delete, Require
from scribengin.registry.record_io import Newer, Stored, put, read_record, stored_as
from scribengin.registry.records import FlowFile, TakenFile
from scribengin.registry.tree import CHANGES, DESIRED, FILE, STATUS, TAKEN

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from structlog.typing import FilteringBoundLogger

    from scribengin.control.registry_cache import Mirror
    from scribengin.control.submission import Applied, Submission
    from scribengin.control.topology import PlannedTopology
    from scribengin.control.workflows import Workflows
    from scribengin.registry.contract import CommittedWrite, Registry, RegistryEntry, Term, Write

    Planning = Callable[[str, FlowFile], tuple[PlannedTopology, list[Submission]]]

REMOVED = 0
"""used in place of a revision: the text of a flow that never had a version was removed, and its record is removed too"""
_PASSING = frozenset({"operation-under-way", "plan-stale", "state-elsewhere", "too-many", "registry-conflict"})
"""codes of problems that may pass, with the same text"""
_FIRST_S, _LAST_S = 1.0, 30.0
"""seconds between two tries of a text that a passing problem blocks"""
_TOLD = 5
"""the most mistakes of one text that are reported"""
_ANEW = "fix the text and write it again"
_FORM = 'write the text of a flow file, or JSON: {"text": "…", "base": "/folder"}'


@dataclass(frozen=True, slots=True)
class FileStanding:
    """The state of a flow's text.

    Attributes:
        revision: of the text that is to be applied, or REMOVED; None: nothing to do.
        refused: a refused text, in the form of `record_validation.Refusals`.
    """

    revision: int | None
    refused: Mapping[str, Any]


def file_standing(mirror: Mirror, flow: str, *, wanted: bool) -> FileStanding:
    """The state of a flow's text, read from the registry. `wanted`: the flow has a desired state."""
    there = mirror.read(FILE(flow).path)
    if there is None or _is_empty(there):
        gone = not wanted and there is None and mirror.stored(TAKEN(flow)) is not None
        return FileStanding(REMOVED if gone else None, {})
    taken = mirror.stored(TAKEN(flow))
    if isinstance(taken, Newer):
        return FileStanding(None, {})
    if not isinstance(taken, Stored) or taken.record.revision != there.changed:
        return FileStanding(there.changed, {})
    said = taken.record
    refused = {FILE(flow).path: refusal(there, said.why, said.remedy)} if not said.version else {}
    return FileStanding(there.changed if said.again else None, refused)


def flow_file_of(there: RegistryEntry | Damaged, flow: str) -> FlowFile:
    """The flow file in a record, which is text or JSON. Raises Refused if it is neither."""
    found = stored_as(there, FILE(flow))
    if isinstance(found, Stored):
        return found.record
    if isinstance(found, Newer):
        raise Refused("was written by a newer Scribengin", remedy="run the newer version")
    if len(found.raw) > RECORD_BYTES:
        raise Refused(f"has {len(found.raw):,} bytes; up to {RECORD_BYTES:,} are allowed", remedy=f"submit it as a file: {_by_verb(flow)}")
    if found.raw.lstrip().startswith(b"{"):
        raise Refused(found.why, remedy=_FORM)
    try:
        return FlowFile(text=found.raw.decode())
    except UnicodeDecodeError as error:
        raise Refused(f"is not UTF-8: byte {error.start} is {found.raw[error.start]:#04x}", remedy=_FORM) from None


class FlowFiles:
    """Applies texts, for the leading master."""

    def __init__(
        self,
        registry: Registry,
        plan: Planning,
        state: str,
        *,
        workflows: Workflows | None = None,
        note: Callable[[str, str], None] = lambda _flow, _outcome: None,
    ) -> None:
        """Apply texts of this registry.

        Args:
            registry: where the texts are, and the versions.
            plan: makes a package of a text and compares it with the running version; raises as `plan_topology`.
            state: the root of the folders of states of new flows.
            workflows: a cache of all flows that were read before.
            note: called for each text that was applied or refused, with the flow, and `done` or the problem's code.
        """
        self._registry = registry
        self._plan = plan
        self._state = state
        self._workflows = workflows
        self._note = note

    def take(self, flow: str, term: Term) -> bool:
        """Apply the present text, unless that was done.

        Returns:
            False if a passing problem blocks the text, and it is to be tried again.

        Raises:
            FencedError: the Term has ended.
            Conflict: the text has changed by now.
            Unreachable: the registry does not answer.
        """
        there = self._registry.read(FILE(flow).path)
        if there is None or _is_empty(there):
            self._clear(flow, term)
            return True
        told = read_record(self._registry, TAKEN(flow))
        before = told.record if isinstance(told, Stored) else None
        if before is not None and before.revision == there.changed and not before.again:
            return True
        noting = _Noting(self._registry, flow, there, term)
        try:
            applied = self._apply(noting, flow, flow_file_of(there, flow))
        except (FencedError, Unreachable, Conflict):
            raise
        except ScribenginError as error:
            said = TakenFile(revision=there.changed, at=now_text(), why=_why(error), remedy=_remedy(error, flow), again=_passes(error))
            if before is None or (before.revision, before.why) != (said.revision, said.why):
                self._note(flow, error.code)
            if before is None or TakenFile(**{**_fields(before), "at": said.at}) != said:
                noting.settle(said)
            return not said.again
        if not noting.done:
            noting.settle(TakenFile(revision=there.changed, version=applied.version, at=now_text()))
        self._note(flow, "done")
        return True

    def _apply(self, registry: _Noting, flow: str, file: FlowFile) -> Applied:
        plan, submissions = self._plan(flow, file)
        check_agreed(plan, accept=file.accept)
        (done,) = write_topology(
            registry,
            submissions,
            plan,
            state=lambda _: self._state,
            by=FILE(flow).path,
            accept=file.accept,
            workflows=self._workflows,
            goal=file.state,
        )
        return done

    def _clear(self, flow: str, term: Term) -> None:
        """Remove the record of a text that was removed and of which no version was made."""
        spots = (DESIRED(flow), TAKEN(flow), STATUS(flow), CHANGES(flow))
        desired, *told = self._registry.read_many([spot.path for spot in spots])
        if desired is None and (gone := [Delete(each.path, each.version) for each in told if each is not None]):
            self._registry.commit(*gone, term=term)


class FlowFilePlanner:
    """Runs `FlowFiles` in a thread of the leading master, since planning takes seconds. `want` is for the master's thread."""

    def __init__(self, files: FlowFiles, log: FilteringBoundLogger) -> None:
        self._files = files
        self._log = log
        self._changed = threading.Condition()
        self._wanted: dict[str, int] = {}
        self._term: Term | None = None
        self._again: dict[str, tuple[int, float, float]] = {}
        """flow → (revision, time of the next try by the monotonic clock, seconds of the last wait)"""
        self._closed = False
        self._thread: threading.Thread | None = None

    def want(self, files: Mapping[str, int], term: Term) -> None:
        """Set the texts to apply: flow → revision."""
        with self._changed:
            if self._closed:
                return
            self._wanted, self._term = dict(files), term
            self._again = {flow: tried for flow, tried in self._again.items() if files.get(flow) == tried[0]}
            if files and self._thread is None:
                self._thread = threading.Thread(target=self._run, name="flow files", daemon=True)
                self._thread.start()
            self._changed.notify()

    def close(self) -> None:
        """End the thread after the current text."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                if (turn := self._next()) is None:
                    return
                flow, revision = turn
                term = self._term
            settled = False
            try:
                settled = term is not None and self._files.take(flow, term)
            except (FencedError, Conflict, Unreachable):
                pass  # another master leads, or another client has changed the text: the next cycle shows what is to be done
            except ScribenginError as error:
                self._log.warning("flow file", flow=flow, message=error.message)
            except Exception:  # a bug: it is logged, and the next text is still applied
                self._log.exception("flow file", flow=flow)
            with self._changed:
                waited_s = self._again.get(flow, (0, 0.0, 0.0))[2]
                wait_s = min(_LAST_S, max(_FIRST_S, 2 * waited_s))
                if settled:
                    self._again.pop(flow, None)
                    if self._wanted.get(flow) == revision:
                        del self._wanted[flow]
                else:
                    self._again[flow] = (revision, time.monotonic() + wait_s, wait_s)

    def _next(self) -> tuple[str, int] | None:
        """The text that is due; waits until there is one. None after `close`."""
        while not self._closed:
            now = time.monotonic()
            due = {flow: self._again.get(flow, (0, 0.0, 0.0))[1] for flow in self._wanted}
            flow = min(due, key=lambda name: due[name], default=None)
            if flow is not None and due[flow] <= now:
                return flow, self._wanted[flow]
            self._changed.wait(None if flow is None else due[flow] - now)
        return None


class _Noting:
    """The registry, wrapped for the one write that makes a version: the same commit records that the text was applied, under the leader's
    Term, and only if that text is still there."""

    def __init__(self, registry: Registry, flow: str, file: RegistryEntry | Damaged, term: Term) -> None:
        self._registry = registry
        self._flow = flow
        self._file = file
        self._term = term
        self.done = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._registry, name)

    def commit(self, *writes: Write, term: Term | None = None) -> CommittedWrite:
        """Commit the writes together with the record of the applied text; see `Registry.commit`."""
        wanted = next(write for write in writes if write.path == DESIRED(self._flow).path)
        version = int(getattr(wanted, "value", {})["version"])
        return self._settle(TakenFile(revision=self._file.changed, version=version, at=now_text()), writes, term or self._term)

    def settle(self, taken: TakenFile) -> None:
        """Record the result of a text of which no version was made."""
        self._settle(taken, (), self._term)

    def _settle(self, taken: TakenFile, writes: Sequence[Write], term: Term) -> CommittedWrite:
        noted = put(self._registry, TAKEN(self._flow), taken)
        done = self._registry.commit(*writes, noted, Require(self._file.path, self._file.version), term=term)
        self.done = True
        return done


def _is_empty(there: RegistryEntry | Damaged) -> bool:
    return not there.raw.strip(b"{} \n") if isinstance(there, Damaged) else not there.value


def _fields(taken: TakenFile) -> dict[str, Any]:
    return {name: getattr(taken, name) for name in taken.__struct_fields__}


def _by_verb(flow: str) -> str:
    return f"scribengin apply {flow}.yaml"


def _passes(error: ScribenginError) -> bool:
    """True if the same text may be applied later: this machine lacks a resource, or another command comes first."""
    return error.code in _PASSING or isinstance(error, EnvironmentFault)


def _why(error: ScribenginError) -> str:
    """All problems, with lines, as the end of a sentence that begins with the record's name."""
    if not isinstance(error, InputError):
        return error.message
    wrong = [problem for problem in error.problems if problem.severity == "error"]
    told = []
    for each in wrong[:_TOLD]:
        remedy = f" ({each.remedy})" if each.remedy and len(wrong) > 1 else ""
        told.append(f"line {each.place.line}: {each.message}{remedy}" if each.place.line else f"{each.message}{remedy}")
    if len(wrong) > _TOLD:
        told.append(f"and {len(wrong) - _TOLD} more")
    return "; ".join(told)


def _remedy(error: ScribenginError, flow: str) -> str:
    if error.code == "plan-unsaid":
        return f'write it as JSON, with "accept": "again" or "lost"; or: {_by_verb(flow)} --accept again'
    if isinstance(error, InputError):
        wrong = [problem for problem in error.problems if problem.severity == "error"]
        return wrong[0].remedy or _ANEW if len(wrong) == 1 else _ANEW
    return error.remedy or _ANEW
