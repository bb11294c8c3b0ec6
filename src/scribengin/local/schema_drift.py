"""Columns that the data has and the schema does not have: reported while a flow runs, and under `evolve: add` added when it starts next."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import replace
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from scribengin.connectors import catalog
from scribengin.core.errors import StateError
from scribengin.core.problems import Place
from scribengin.core.types import Schema
from scribengin.plan.check import check_flow
from scribengin.plan.graph import Graph
from scribengin.plan.key_columns import key_columns
from scribengin.plan.resolve import resolve
from scribengin.spec.call_sites import CallPlaces
from scribengin.spec.model import Sql, Step
from scribengin.state.columns import Learned, column_of, is_reserved_column, keep_learned, learn, read_learned
from scribengin.state.ledger import read_totals
from scribengin.state.lineage import past_lineages
from scribengin.state.topology import tiers_with_state
from scribengin.state.totals import Noticed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from scribengin.core.problems import Problem
    from scribengin.core.types import Field
    from scribengin.formats.notice import FormatNotice
    from scribengin.spark.commit import CommittedBatch
    from scribengin.spec.model import Evolve, Flow
    from scribengin.state.folder import QueryFolder
    from scribengin.state.totals import Totals


def with_learned(flow: Flow, root: Path) -> Flow:
    """The flow with the columns that its sources have learned: after the declared ones, in the order in which they were seen, nullable.
    Columns with which it could not run are left out."""
    for id_, source in flow.sources.items():
        if source.schema is None or source.schema.evolve != "add":
            continue
        for each in _learned(flow, root, id_):
            if not why_dropped(flow, id_, each.field):
                flow = _with(flow, id_, each.field)
    return flow


def _learned(flow: Flow, root: Path, source: str) -> list[Learned]:
    """The learned columns of a source, including those that an interruption kept from being stored: the decisions contain them, also those
    of lineages that rewinds have ended. If several queries, of present or former tiers, have the same column, the oldest one counts."""
    learned = read_learned(root, flow.name, source)
    there = {each.field.name.lower() for each in learned}
    decided: list[Learned] = []
    with suppress(StateError):  # a damaged ledger is reported where it is read
        for query in (query for tier in tiers_with_state(root, flow.name) for query in tier.queries()):
            for each in read_noticed(query):
                notice, field = each.notice, column_of(each.notice)
                if notice.source == source and notice.kind == "new" and field is not None:
                    decided.append(Learned(field, each.at, notice.file))
    for new in sorted(decided, key=lambda each: (each.at, str(each.field))):
        if new.field.name.lower() not in there:
            there.add(new.field.name.lower())
            learned.append(new)
    return sorted(learned, key=lambda each: (each.at, each.field.name))


def keep_all_learned(flow: Flow, root: Path) -> None:
    """Store, at a start, the learned columns with which the flow is planned. The caller holds the leases of its tiers."""
    for id_, source in flow.sources.items():
        if source.schema is not None and source.schema.evolve == "add":
            for each in _learned(flow, root, id_):
                keep_learned(root, flow.name, id_, each)


def read_noticed(query: QueryFolder) -> list[Noticed]:
    """All notices of a query, one for each column and kind: that of the present lineage, otherwise that of the newest one that a rewind has
    ended. Raises StateError."""
    found: dict[tuple[str, str, str], Noticed] = {}
    for folder, _ in past_lineages(query):
        found |= read_totals(folder).noticed
    return [*(found | read_totals(query).noticed).values()]


def why_dropped(flow: Flow, source: str, field: Field) -> str:
    """Why a flow runs without a column that its data has: it could not start with the column, and data must not make a start fail. Empty if
    the column can be added."""
    schema = flow.sources[source].schema
    assert schema is not None
    name = field.name.lower()
    if is_reserved_column(field.name):
        return "names that begin with _sg_ are reserved"
    same = [other.name for other in schema.fields.fields if other.name.lower() == name]
    if same:
        return f'the schema has "{same[0]}", which differs only in case'
    more = _with(flow, source, field)
    before = _errors(flow)
    new = [problem for problem in _errors(more) if problem not in before]
    return new[0].message if new else _clash(more, source, name)


def _with(flow: Flow, source: str, field: Field) -> Flow:
    node = flow.sources[source]
    assert node.schema is not None
    fields = Schema((*node.schema.fields.fields, field))
    schema = replace(node.schema, fields=fields, learned=(*node.schema.learned, field.name))
    return replace(flow, sources={**flow.sources, source: replace(node, schema=schema)})


def _errors(flow: Flow) -> list[Problem]:
    places = CallPlaces.of(flow, Place(""))
    source_types, sink_types = catalog.source_types(internal=True), catalog.sink_types(internal=True)
    found = check_flow(flow, places, source_types=source_types, sink_types=sink_types)
    return [problem for problem in found if problem.severity == "error"]


def _clash(flow: Flow, source: str, name: str) -> str:
    graph = Graph(flow)
    resolved = resolve(graph)
    for id_ in graph.downstream([source]):
        columns, node = resolved.of(id_), graph.nodes[id_]
        if columns is not None and [column.name.lower() for column in columns].count(name) > 1:
            return f'"{id_}" already has a column of that name'
        if columns is None and isinstance(node, Step) and isinstance(node.action, Sql) and name in _words(node.action.text):
            return f'the query of step "{id_}" already uses that name'
    return ""


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.lower()))


_REPEATED = frozenset({"missing", "renamed", "null", "again"})
"""kinds of notices that the summary repeats, because they concern every row"""


class Learning:
    """Processes the notices of each Batch of one query. `say` receives a sentence for people, once for each column."""

    def __init__(self, flow: Flow, root: Path, say: Callable[[str], None]) -> None:
        self._flow = flow
        self._root = root
        self._say = say
        self.seen: Mapping[tuple[str, str, str], Noticed] = {}
        """all notices so far; replaced by a new mapping at each change, for other threads"""
        self.repeated: list[str] = []
        """sentences that the summary repeats, because the progress display may have hidden them"""
        self._here: set[tuple[str, str, str]] = set()
        """the keys of the notices of the present lineage"""

    def begin(self, totals: Totals, noticed: Iterable[Noticed] = ()) -> None:
        """Take over what was decided before; `noticed` includes lineages that rewinds have ended. It is not reported again, and columns
        that an interruption kept from being stored are stored now."""
        self._here = set(totals.noticed)
        self.seen = {each.notice.key: each for each in noticed} | totals.noticed
        for each in self.seen.values():
            self._learn(each.notice, each.at)

    def committed(self, batch: CommittedBatch) -> None:
        """Process the notices of a committed Batch."""
        decision, seen = batch.decision, dict(self.seen)
        for notice in decision.noticed:
            self._learn(notice, decision.decided_at)
            known = seen.get(notice.key)
            if notice.key not in self._here:
                self._here.add(notice.key)
                seen[notice.key] = Noticed(notice, decision.batch.number, decision.decided_at)
            if known is None:
                text = sentence(notice, self._evolve(notice.source), why_new_dropped(self._flow, notice), self._key_use(notice))
                self._say(text)
                if notice.kind in _REPEATED:
                    self.repeated.append(text)
            elif seen[notice.key] is known:
                counted = replace(known.notice, records=known.notice.records + notice.records)
                seen[notice.key] = replace(known, notice=counted)
        if decision.noticed:
            self.seen = seen

    def _learn(self, notice: FormatNotice, at: str) -> None:
        if notice.kind == "new" and self._evolve(notice.source) == "add":
            learn(self._root, self._flow.name, notice, at)

    def _key_use(self, notice: FormatNotice) -> str:
        return key_columns(self._flow).get(notice.source, {}).get(notice.column, "") if notice.kind == "missing" else ""

    def _evolve(self, source: str) -> Evolve:
        node = self._flow.sources.get(source)
        return "strict" if node is None or node.schema is None else node.schema.evolve


def why_new_dropped(flow: Flow, notice: FormatNotice) -> str:
    """Why a new column is dropped although its source adds columns, as `why_dropped`; empty for other notices."""
    node = flow.sources.get(notice.source)
    if notice.kind != "new" or node is None or node.schema is None or node.schema.evolve != "add":
        return ""
    field = column_of(notice)
    return "its name or type is not possible in a schema" if field is None else why_dropped(flow, notice.source, field)


def rewritten_text(file: str) -> str:
    """The message that a growing file was edited, and what to do. `file` is its path."""
    return (
        f"{file} was rewritten, not appended to: it is read again from its start, and rows that it still contains are read "
        "twice; put new records into a new file, or append lines to this one"
    )


def sentence(notice: FormatNotice, evolve: Evolve, why: str = "", key_use: str = "") -> str:
    """A notice as a sentence for people.

    Args:
        notice: The notice.
        evolve: The setting of the source.
        why: Why a new column is dropped; empty if it is not.
        key_use: For a missing column that is used as a key, what uses it.
    """
    at = notice.file if notice.line is None else f"{notice.file}:{notice.line}"
    match notice.kind:
        case "new":
            then = "it is added at the next start" if evolve == "add" else "it is dropped; to keep it, add it to `schema:`"
            then = f"it is dropped: {why}" if why else then
            return f'source {notice.source}: the data has a column "{notice.column}" ({notice.type}), first seen in {at}; {then}'
        case "field":
            what = f'objects have a field "{notice.column}" ({notice.type}), first seen in {at}'
            return f"source {notice.source}: {what}; it is dropped; to keep it, add it to the column's type"
        case "missing":
            which = f", which is {key_use}" if key_use else ""
            return (
                f'source {notice.source}: {at} has no column "{notice.column}"{which}; its value is null, '
                "or the rows become dead letters if it is NOT NULL"
            )
        case "renamed":
            what = f'"{notice.column}" has no value in {at} ({_looked_at(notice.records)}), which has a field "{notice.type}"'
            return f"source {notice.source}: {what}; if both are the same, use that name in `schema:` and in the steps"
        case "null":
            what = f'"{notice.column}" ({notice.type}) has no value in a whole Batch ({_looked_at(notice.records)})'
            return f"source {notice.source}: {what}; check its name in the data"
        case "lines":
            what = "a quoted cell spans several lines in a tab-separated file"
            return f"source {notice.source}: {what}, first in {at}; if quotes have no meaning there, set quote: none"
        case "empty":
            return f"source {notice.source}: {at} has no records: its whole content was read as the header line"
        case "again":
            return f"source {notice.source}: {rewritten_text(at)}"
    return (
        f'source {notice.source}: values of "{notice.column}" are not of type {notice.type}, first in '
        f"{at}; they become null and are counted"
    )


def _looked_at(records: int) -> str:
    return f"{records:,} record{'s' * (records != 1)} checked"


def noticed_rows(
    flow: Flow, found: Iterable[Noticed], why: Callable[[Flow, FormatNotice], str] = why_new_dropped
) -> list[dict[str, object]]:
    """The notices of all queries as rows for `status`, each column once. `why` returns why a new column is dropped."""
    rows: dict[tuple[str, str, str], dict[str, object]] = {}
    for each in found:
        notice = each.notice
        node = flow.sources.get(notice.source)
        evolve = node.schema.evolve if node is not None and node.schema is not None else "strict"
        declared = node is not None and node.schema is not None and notice.column in node.schema.fields
        known = rows.setdefault(
            notice.key,
            {
                "source": notice.source,
                "column": notice.column,
                "kind": notice.kind,
                "type": notice.type,
                "file": notice.file,
                "line": notice.line,
                "batch": each.batch,
                "at": each.at,
                "records": 0,
                "now": "dropped" if not declared and why(flow, notice) else _now(notice, evolve, declared=declared),
            },
        )
        more = int(str(known["records"])) + notice.records if notice.kind == "nulled" else notice.records
        known["records"] = max(int(str(known["records"])), more)
    return sorted(rows.values(), key=lambda row: (str(row["at"]), str(row["source"]), str(row["column"])))


class NoticedNow:
    """The rows of `noticed_rows` while the queries run, made again when something has changed. Used by one thread."""

    def __init__(self, flow: Flow, learning: Sequence[Learning]) -> None:
        self._flow = flow
        self._learning = learning
        self._seen: list[Mapping[tuple[str, str, str], Noticed]] = []
        self._rows: tuple[Mapping[str, object], ...] = ()
        self._why: dict[tuple[str, str, str], str] = {}
        """notice → why its column is dropped, from a check of the whole flow"""

    def rows(self) -> tuple[Mapping[str, object], ...]:
        """The present rows, one for each column that was noticed."""
        seen = [each.seen for each in self._learning]
        if any(now is not before for now, before in zip_longest(seen, self._seen)):
            self._rows = tuple(noticed_rows(self._flow, (each for found in seen for each in found.values()), self._dropped))
            self._seen = seen
        return self._rows

    def _dropped(self, flow: Flow, notice: FormatNotice) -> str:
        if notice.key not in self._why:
            self._why[notice.key] = why_new_dropped(flow, notice)
        return self._why[notice.key]


def noticed_text(row: Mapping[str, Any]) -> str:
    """A row of `noticed_rows` for people, on one line."""
    at = row["file"] if row["line"] is None else f"{row['file']}:{row['line']}"
    column = f'source {row["source"]}: column "{row["column"]}"'
    match row["kind"]:
        case "new":
            return f"{column} ({row['type']}) is new, first in {at}: {row['now']}"
        case "field":
            return f"{column} ({row['type']}) is a new field of objects, first in {at}: {row['now']}"
        case "missing":
            return f"{column} is missing in {at}: its value is null"
        case "renamed":
            return f'{column} has no value in {at}, which has a field "{row["type"]}"'
        case "null":
            return f"{column} ({row['type']}) has no value in Batch {row['batch']} ({_looked_at(row['records'])})"
        case "lines":
            return (
                f"source {row['source']}: quoted cells span several lines in a tab-separated file, first "
                f"in {at}; if quotes have no meaning there, set quote: none"
            )
        case "empty":
            return f"source {row['source']}: {at} has no records after its header line"
        case "again":
            return f"source {row['source']}: {at} was rewritten: it is read again from its start"
    return f"{column}: {row['records']:,} values are not of type {row['type']}, first in {at}: null"


def _now(notice: FormatNotice, evolve: Evolve, *, declared: bool) -> str:
    if notice.kind == "new":
        return "taken in" if declared else "taken in at the next start" if evolve == "add" else "dropped"
    return {"field": "dropped", "lines": "read as one cell", "empty": "read", "again": "read again"}.get(notice.kind, "null")
