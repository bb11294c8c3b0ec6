"""Client calls about the state of a flow, its records, its graph, and groups; `client.Client` includes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from scribengin.client.answer_models import (
    FlowGraph,
    GraphCounts,
    LetterCounts,
    LetterPage,
    LetterRepaired,
    LettersPurged,
    PurgeLetters,
    PurgeUndone,
    RepairLetter,
    ReplayLetters,
    Summaries,
    UndoPurge,
)
from scribengin.client.group_models import GroupRow
from scribengin.client.transport import Transport, part

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from scribengin.client.answer_models import Letter
    from scribengin.client.group_models import SetMember

_PAGE = 100


class AnswerClient(Transport):
    """These calls. Raises Refused: `state-elsewhere`, `state-missing`, `answer-late`, `too-many`."""

    def dead_letter_counts(self, name: str, **which: str) -> LetterCounts:
        """Count the dead letters of a flow by Query, step and reason; `which` as in `dead_letter_page`."""
        return self._get(f"/v1/flows/{part(name)}/dead-letters/counts?{_said(**which)}", LetterCounts)

    def replay_letters(
        self, name: str, which: Mapping[str, str], *, from_start: bool, as_is: bool, dry_run: bool, repaired: str | None
    ) -> dict[str, Any]:
        """Replay dead letters once. Raises Refused: `letters-file` if `repaired` is not an exported file."""
        asked = ReplayLetters(**which, from_start=from_start, as_is=as_is, dry_run=dry_run, repaired=repaired)
        return self._write("POST", f"/v1/flows/{part(name)}/dead-letters/replays", asked, dict[str, Any], None)

    def repair_letter(self, name: str, repair: RepairLetter) -> LetterRepaired:
        """Repair a dead letter, or show what a repair would do. Raises Refused: `letter-unknown`, `letter-refused`, `letter-columns`,
        `letter-changed` if the dead letter no longer matches `digest`."""
        return self._write("POST", f"/v1/flows/{part(name)}/dead-letters/repairs", repair, LetterRepaired, None)

    def purge_letters(self, name: str, which: Mapping[str, str], *, replayed: bool, dry_run: bool) -> LettersPurged:
        """Delete dead letters. Raises Refused: `flow-not-stopped`."""
        asked = PurgeLetters(**which, replayed=replayed, dry_run=dry_run)
        return self._write("POST", f"/v1/flows/{part(name)}/dead-letters/purges", asked, LettersPurged, None)

    def undo_purge(self, name: str, id_: str = "") -> PurgeUndone:
        """Restore the dead letters deleted by the newest purge, or by the purge of that id. Raises Refused: `flow-not-stopped`,
        `trash-missing`, `trash-taken`."""
        return self._write("POST", f"/v1/flows/{part(name)}/dead-letters/purges/undo", UndoPurge(id_), PurgeUndone, None)

    def dead_letter_page(self, name: str, after: str = "", *, limit: int = 100, **which: str) -> LetterPage:
        """The next dead letters after `after`, the value from the page before; `which` are `query`, `step`, `reason`, `prefix`, `since`,
        `until`."""
        return self._get(f"/v1/flows/{part(name)}/dead-letters?{_said(after=after, limit=str(limit), **which)}", LetterPage)

    def dead_letters(self, name: str, **which: str) -> Iterator[Letter]:
        """All dead letters, read page by page as with `dead_letter_page`."""
        after = ""
        while True:
            page = self.dead_letter_page(name, after, limit=_PAGE, **which)
            yield from page.letters
            after = page.after
            if not after:
                return

    def trace(self, name: str, record: str) -> dict[str, Any]:
        """Trace the record of that id, or all records whose id has this prefix."""
        return self._get(f"/v1/flows/{part(name)}/trace?{_said(record=record)}", dict[str, Any])

    def audit(self, name: str) -> dict[str, Any]:
        """Check whether outputs, dead letters and ledger balance."""
        return self._get(f"/v1/flows/{part(name)}/audit", dict[str, Any])

    def summary(self, name: str, sink: str = "") -> Summaries:
        """The tables of a flow's summary sinks, or of one. Raises Refused: `summary-missing` too."""
        return self._get(f"/v1/flows/{part(name)}/summary?{_said(sink=sink)}", Summaries)

    def graph(self, name: str) -> FlowGraph:
        """Nodes, arrows, tiers and channels of a flow, with their live figures."""
        return self._get(f"/v1/flows/{part(name)}/graph", FlowGraph)

    def graph_counts(self, name: str) -> GraphCounts:
        """The rows that passed along the arrows of a flow's graph in its last run."""
        return self._get(f"/v1/flows/{part(name)}/graph/counts", GraphCounts)

    def groups(self) -> list[GroupRow]:
        """The groups that flows name, their members, and the state of these members as sinks find it."""
        return self._get("/v1/groups", list[GroupRow])

    def group(self, name: str) -> GroupRow:
        """One group. Raises Refused if there is no group of that name."""
        return self._get(f"/v1/groups/{part(name)}", GroupRow)

    def set_member(self, group: str, member: str, to: SetMember) -> GroupRow:
        """Disable a member, enable it, or set its cost, from the next Batch on. Raises Refused: `group-last`, `member-unknown`,
        `group-cost`."""
        return self._write("PUT", f"/v1/groups/{part(group)}/members/{part(member)}", to, GroupRow, None)


def _said(**given: str) -> str:
    """The values as the query of a URL, without empty ones."""
    return urlencode({name: value for name, value in given.items() if value})
