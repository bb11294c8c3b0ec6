"""The tables of `type: summary` sinks: the result over the decided Batches, from a snapshot and the decisions after it.

They can be read while a flow runs and while it does not, in any process, without a lease. The snapshot saves time; after thirty days, when
the write receipts of decisions are pruned, it is all that is left of old Batches.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from importlib.util import module_from_spec, spec_from_file_location
from typing import TYPE_CHECKING, Any

from scribengin.connectors.summary.forms import asked_of
from scribengin.connectors.summary.table import shown
from scribengin.core.errors import Refused, ScribenginError, StepError
from scribengin.core.records import seal, unseal
from scribengin.core.storage import put_if_absent, read_or_none, replace
from scribengin.core.time_text import now_text
from scribengin.plan.python_functions import find_module
from scribengin.state.decisions import Decisions
from scribengin.state.folder import QueryFolder
from scribengin.state.lineage import read_lineage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from scribengin.connectors.summary.forms import SummaryForm, SummaryPart
    from scribengin.local.prepare import PreparedFlow
    from scribengin.spec.model import Flow
    from scribengin.state.contract import Decision
    from scribengin.state.lineage import Lineage

SUMMARY = "summary"
EVERY = 50
"""Batches between two snapshots"""
_KIND, _FORMAT = "summary", 1
_BEFORE = "summary-before"


@dataclass(slots=True)
class SummaryState:
    """The state of one summary: the result over the Batches `since` to `through` (-1: none yet). `since` is not 0 if the
    question, its `keep` or the types of its columns have changed, if the sink was added later or was missing for a while, and if
    older parts are pruned."""

    sink: str
    lineage: str
    asked: SummaryForm
    table: SummaryPart
    through: int = -1
    since: int = 0
    since_at: str = ""
    """when what it counts began; empty if it counts everything that the sink ever received"""
    at: str = ""
    """when Batch `through` was decided"""

    def add(self, decision: Decision) -> None:
        """Add a Batch; one that is included already changes nothing."""
        number = decision.batch.number
        if number <= self.through:
            return
        receipts = decision.of_sink(self.sink).receipts
        parts = [segment["part"] for receipt in receipts for segment in receipt.segments if "part" in segment]
        if decision.empty:
            pass  # it does not show whether the query had the sink
        elif self.sink not in decision.counts or (not parts and any(receipt.rows for receipt in receipts)):
            self._begin(number + 1, decision.decided_at)  # the query did not have that sink then, or it was of another type
        for part in parts:
            self._take(part, decision)
        self.through, self.at = number, decision.decided_at

    def _take(self, part: Mapping[str, Any], decision: Decision) -> None:
        number = decision.batch.number
        if part["form"] == self.asked.form and not self.table.goes_with(part):
            self._begin(number, self.at or decision.decided_at)  # its columns have other types, or it was trimmed by another rule
        if part["form"] == self.asked.form and self.table.goes_with(part):
            self.table.merge(self.asked.read(part))
        else:  # it belongs to another question: the flow was changed after it
            self._begin(number + 1, decision.decided_at)

    def _begin(self, since: int, at: str) -> None:
        """Start over with an empty table: a table with a gap would not be the result over any range of Batches."""
        self.table, self.since, self.since_at = self.asked.empty(), since, at

    def write(self, file: Path) -> None:
        """Write the snapshot durably. The caller holds the lease."""
        body = {"lineage": self.lineage, "through": self.through, "since": self.since, "since_at": self.since_at, "at": self.at}
        body["table"] = self.table.as_json()
        replace(file, seal(_KIND, _FORMAT, body))


def read_kept(flow: Flow, folder: QueryFolder, sink: str) -> SummaryState:
    """The summary of one sink now. Raises StateError for records that are damaged."""
    asked = asked_of(flow.sinks[sink].options, partial(load, flow))
    return _read(asked, folder, sink, folder, read_lineage(folder))


def _read(asked: SummaryForm, folder: QueryFolder, sink: str, part: QueryFolder, lineage: Lineage | None) -> SummaryState:
    """The summary of one lineage of the query, whose folder is `part`."""
    kept = SummaryState(sink, "" if lineage is None else lineage.id, asked, asked.empty())
    decisions = Decisions(part.decisions)
    file = snapshot_file(folder, sink)
    data = read_or_none(file)
    body = None if data is None else unseal(data, _KIND, _FORMAT, file)
    if body is not None and body["lineage"] == kept.lineage:
        kept.through, kept.since, kept.since_at, kept.at = body["through"], body["since"], body.get("since_at", ""), body["at"]
        if body["table"]["form"] == asked.form and kept.table.goes_with(body["table"]):
            kept.table = asked.read(body["table"])
        else:
            kept._begin(kept.through + 1, kept.at)
    elif lineage is not None and (earlier := _earlier(asked, folder, sink, lineage.id)) is not None:
        kept.table, kept.since_at, kept.at = earlier.table, earlier.since_at, earlier.at
    elif lineage is not None and any(lineage.starts.values()):
        kept.since_at = lineage.created_at  # data before that was not read in this lineage
    forgotten = decisions.pruned_mark()
    if forgotten > kept.through:
        oldest = decisions.read(forgotten + 1)
        kept._begin(forgotten + 1, oldest.decided_at if oldest is not None else now_text())
        kept.through = forgotten
    for decision in decisions.since(kept.through + 1):
        kept.add(decision)
    return kept


def snapshot_file(folder: QueryFolder, sink: str) -> Path:
    """The path of the summary's snapshot."""
    return folder.work(sink) / "summary.json"


def continue_table(folder: QueryFolder, sink: str, lineage: str, before: tuple[str, str, str]) -> None:
    """Record that the summary of a lineage continues the table of the lineage that it replaces. The caller holds the lease. Idempotent.

    Args:
        folder: The folder of the query's state.
        sink: The id of the summary.
        lineage: The new lineage.
        before: Tier, query and lineage whose table it continues.
    """
    put_if_absent(_before_file(folder, sink, lineage), seal(_BEFORE, _FORMAT, {"before": list(before)}))


def _before_file(folder: QueryFolder, sink: str, lineage: str) -> Path:
    """The path of that record, one for each lineage: a query that is moved away may come back."""
    return folder.work(sink) / f"before-{lineage}.json"


def _earlier(asked: SummaryForm, folder: QueryFolder, sink: str, lineage: str) -> SummaryState | None:
    """The table that a lineage continues after a move; None if there is none."""
    file = _before_file(folder, sink, lineage)
    data = read_or_none(file)
    if data is None:
        return None
    tier, query, id_ = unseal(data, _BEFORE, _FORMAT, file)["before"]
    there = folder.path.parent.with_name(tier) / query
    for part in (QueryFolder(there), QueryFolder(there).past(id_)):
        before = read_lineage(part)
        if before is not None and before.id == id_:
            return _read(asked, QueryFolder(there), sink, part, before)
    return None


def load(flow: Flow, reference: str) -> Any:
    """The object that `module:name` stands for in the flow's folder, loaded again: no archive of code is active if nothing runs. Raises
    StepError."""
    module, _, name = reference.partition(":")
    file = find_module(module, flow.code_folder)
    if file is None:
        message = f"cannot load {reference}: module {module} does not exist in {flow.code_folder}"
        raise StepError(message, remedy="restore it, or correct `python`")
    folder = str(flow.code_folder.resolve())
    sys.path.insert(0, folder)
    try:
        spec = spec_from_file_location(f"_summary_{sha256(str(file).encode()).hexdigest()[:16]}", file)
        assert spec is not None
        assert spec.loader is not None
        loaded = module_from_spec(spec)
        spec.loader.exec_module(loaded)
        return getattr(loaded, name)
    except Exception as error:
        raise StepError(
            f"cannot load {reference}: {type(error).__name__}: {error}", remedy="correct it, then repeat the command"
        ) from error
    finally:
        sys.path.remove(folder)


class SummaryKeeper:
    """Keeps the summaries of one query and their snapshots up to date while it runs. An error in a user's class does not block a Batch:
    `say` receives the reason, and readers of the summary get the error. Once the class is corrected, nothing is missing."""

    def __init__(self, flow: Flow, folder: QueryFolder, sinks: Iterable[str], say: Callable[[str], None]) -> None:
        self._folder = folder
        self._say = say
        self._kept: dict[str, SummaryState] = {}
        self._written: dict[str, int] = {}
        for sink in sinks:
            if flow.sinks[sink].type == SUMMARY:
                with self._blaming_question(sink):
                    self._kept[sink] = read_kept(flow, folder, sink)
                    self._write(self._kept[sink])

    def committed(self, decision: Decision) -> None:
        """Add a decided Batch, which may be a replayed one."""
        for sink, kept in list(self._kept.items()):
            with self._blaming_question(sink):
                kept.add(decision)
                if kept.through >= self._written.get(sink, -1) + EVERY:
                    self._write(kept)

    def _write(self, kept: SummaryState) -> None:
        if kept.through >= 0:
            kept.write(snapshot_file(self._folder, kept.sink))
            self._written[kept.sink] = kept.through

    @contextmanager
    def _blaming_question(self, sink: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            if isinstance(error, OSError) or (isinstance(error, ScribenginError) and not isinstance(error, StepError)):
                raise  # an error of the place, not of the question
            self._kept.pop(sink, None)
            why = error.message if isinstance(error, StepError) else f"{type(error).__name__}: {error}"
            self._say(f"summary {sink} is not up to date: {why}; no data is lost")


def read_summaries(prepared: PreparedFlow, sink: str = "") -> dict[str, Any]:
    """All summaries of a flow, or that of one sink, as `summary --json` prints them. Raises Refused if no summary has that name."""
    rows = summaries_of(prepared, sink)
    if not rows:
        named = f'no summary "{sink}"' if sink else "no sink of `type: summary`"
        have = [id_ for id_, node in prepared.plan.flow.sinks.items() if node.type == SUMMARY]
        remedy = f"its summaries are {', '.join(have)}" if have else "add one: {from: …, type: summary, sql: SELECT … FROM rows GROUP BY …}"
        raise Refused(f'flow "{prepared.name}" has {named}', remedy=remedy, code="summary-missing")
    return {"flow": prepared.name, "summaries": rows}


def summaries_of(prepared: PreparedFlow, sink: str = "", *, unread: list[StepError] | None = None) -> list[dict[str, Any]]:
    """The summaries as rows; [] if there are none. If `unread` is given, the reason why one cannot be read is appended to it."""
    rows = []
    for tier in prepared.tiers:
        flow = tier.plan.flow
        for query in tier.plan.queries:
            for name in query.sinks:
                if flow.sinks[name].type == SUMMARY and sink in ("", name):
                    try:
                        kept = read_kept(flow, tier.folder.query(query.name), name)
                        rows.append(_as_json(kept, query.name, str(flow.sinks[name].options.get("format") or "table")))
                    except StepError as error:
                        if unread is None:
                            raise
                        unread.append(error)
    return rows


def _as_json(kept: SummaryState, query: str, format: str) -> dict[str, Any]:
    table = kept.table
    rows = table.result()
    return {
        "sink": kept.sink,
        "query": query,
        "format": format,
        "columns": table.outputs(rows),
        "rows": [_shown(kept.sink, row) for row in rows],
        "batch": kept.through if kept.through >= 0 else None,
        "since_batch": kept.since,
        "since": kept.since_at or None,
        "decided_at": kept.at,
        "rows_in": table.rows,
        "groups": table.size,
        "keep": kept.asked.keep,
        "left_out": table.left_out,
        "rows_left_out": table.rows_left_out,
    }


def _shown(sink: str, row: Mapping[Any, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for name, value in row.items():
        if not isinstance(name, str):
            raise StepError(f"summary {sink}: result() returned a row with the key {name!r}", remedy="use text for the keys of each row")
        try:
            made[name] = shown(value)
        except (TypeError, RecursionError) as error:
            what = f'summary {sink}: result() returned a value for "{name}" that cannot be shown: {error}'
            raise StepError(what, remedy="return numbers, texts, dates, or lists and dicts of these") from error
    return made
