"""The positions of a flow that is given as a file: `scribengin offsets show|skip|set FILE`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from scribengin.cli.answer import AnsweringCommand, CommandAnswer
from scribengin.cli.confirm import confirm
from scribengin.cli.flow_argument import flow_argument, flow_path
from scribengin.cli.flow_state import open_state
from scribengin.cli.settings import setting_flags
from scribengin.core.errors import Refused
from scribengin.core.problems import did_you_mean
from scribengin.core.units import show_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scribengin.cli.flow_state import TierState
    from scribengin.cli.plane_option import Masters
    from scribengin.local.positions import MovedPosition
    from scribengin.spec.model import Flow
    from scribengin.state.folder import QueryFolder


def positions_of_file(flow: str, query: str | None, state: Path | None) -> tuple[str, list[dict[str, Any]]]:
    """Returns the flow's name and a row for each source of each Query."""
    found = open_state(flow, state)
    return found.declared.name, [row for _, part in found.queries(query) for row in _positions(part)]


def positions_of_name(flow: str, query: str | None, masters: Masters) -> list[dict[str, Any]]:
    """Returns a row for each source of each query of a submitted flow. Raises Refused if no query has the name `query`."""
    import msgspec

    with masters.client() as client:
        rows: list[dict[str, Any]] = msgspec.to_builtins(client.offsets(flow))
    if query is not None and query not in (have := {row["query"] for row in rows}):
        remedy = did_you_mean(query, have) or f"with state are {', '.join(sorted(have)) or 'none'}"
        raise Refused(f'flow "{flow}" has no query "{query}" with state', remedy=remedy, code="query-unknown")
    return [row for row in rows if query in (None, row["query"])]


@click.command(cls=AnsweringCommand)
@flow_argument
@click.argument("file", type=click.Path())
@setting_flags("state")
def skip(*, flow: str, file: str, state: Path | None) -> CommandAnswer:
    """Skip a missing or changed FILE that is assigned but not committed. If it reappears, it is read as a new file.

    \b
    Example:
      scribengin offsets skip flow.yaml data/2.jsonl
    """
    found = open_state(flow, state)
    with found.leases():
        skipped = [row for tier, part in found.queries() for row in _skip(part, tier.flow, file)]
    if not skipped:
        raise Refused(
            f"{file} is not in an uncommitted Batch",
            remedy="write the file as in the error message; committed files stay as they are",
            code="skip-unknown",
        )
    lines = [f"query {row['query']}: {row['file']} is skipped, {row['bytes']:,} bytes" for row in skipped]
    return CommandAnswer({"flow": found.declared.name, "skipped": skipped}, show=lambda: click.echo("\n".join(lines)))


def set_of_file(*, flow: str, source: str, position: str, query: str | None, yes: bool, dry_run: bool, state: Path | None) -> CommandAnswer:
    """Carry out `offsets set` for a flow file. `position` is a number of entries or "end"."""
    from scribengin.local.positions import decided_ends, move_back, move_forward
    from scribengin.local.prepare import prepare
    from scribengin.state.lineage import finish_rewind

    found = open_state(flow, state)
    declared = found.declared
    if source not in declared.sources:
        near = did_you_mean(source, declared.sources) or f"its sources are {', '.join(declared.sources)}"
        raise Refused(f'flow "{declared.name}" has no source "{source}"', remedy=near, code="source-unknown")
    if position != "end" and not position.isdigit():
        raise Refused(f'"{position}" is not a valid position', remedy="write a number of entries, or end", code="position-unknown")
    to = None if position == "end" else int(position)
    with found.leases() as leases:
        chosen = found.queries(query)
        for _, part in chosen:
            finish_rewind(part)
        parts = [(tier, part) for tier, part in chosen if source in tier.flow.sources and reads(part, source)]
        back = [] if to is None else [part for _, part in parts if to < decided_ends(part).get(source, 0)]
        meant = _what_it_means(parts, back, source, position)
        if dry_run:
            return CommandAnswer({"flow": declared.name, "moved": [], "says": meant}, show=lambda: click.echo("\n".join(meant)))
        confirm(f"of flow {declared.name}:", meant, yes=yes, code="set-unsaid")
        # prepared before the first position moves: if the flow has mistakes, its sinks cannot be opened and nothing may move
        prepared = prepare(flow_path(flow), state=found.tiers[0].folder.root).tiers if back else ()
        moved = []
        for tier, part in parts:
            if part in back:
                assert to is not None
                planned = next(each for each in prepared if each.plan.tier == tier.folder.tier)
                moved.append(move_back(planned, part, source, to, leases[tier.folder.tier]))
            else:
                moved.append(move_forward(tier.flow, part, source, to))
    lines = [_line(each) for each in moved]
    return CommandAnswer({"flow": declared.name, "moved": [m.as_json() for m in moved]}, show=lambda: click.echo("\n".join(lines)))


def _what_it_means(parts: list[tuple[TierState, QueryFolder]], back: list[QueryFolder], source: str, position: str) -> list[str]:
    """Describe the consequences that the user has to confirm. Raises Refused if a query cannot go back."""
    from scribengin.local.positions import closed_text, preview_move_back

    meant = []
    forward = ", ".join(part.name for _, part in parts if part not in back)
    if forward or not back:
        meant.append(
            f'this lets {forward or "no query"} skip what source "{source}" holds before position {position}; those records are never read'
        )
    for tier, part in parts:
        if part not in back:
            continue
        moved = preview_move_back(part, source, int(position))
        doubled = [
            f"up to {rows:,} rows of sink {sink} ({tier.flow.sinks[sink].options.get('path', tier.flow.sinks[sink].type)})"
            f"{closed_text(tier.flow.sinks[sink])}"
            for sink, rows in (moved.doubled or {}).items()
            if sink in tier.flow.sinks
        ]
        meant.append(
            f'this lets {part.name} read source "{source}" again from position {position} to {moved.before} ({_amount(moved)}); '
            f"rows written from it stay in the sinks, and will be duplicated in: {', and '.join(doubled) or 'none'}"
        )
    return meant


def _amount(moved: MovedPosition) -> str:
    files = f"{moved.files:,} file{'s' * (moved.files != 1)}, {show_bytes(moved.bytes)}"
    return files if moved.files or not moved.rows else f"{moved.rows:,} rows"


def _line(moved: MovedPosition) -> str:
    where = f"query {moved.query}: {moved.source} moved from {moved.before} {'back ' * moved.back}to {moved.after}"
    if not moved.back:
        return f"{where}; {_amount(moved)} unread"
    twice = ", ".join(f"{sink} up to {rows:,} rows" for sink, rows in (moved.doubled or {}).items())
    return f"{where}; {_amount(moved)} read again by the next run, in the new lineage {moved.lineage}; duplicated then: {twice}"


def reads(part: QueryFolder, source: str) -> bool:
    """True if the query's newest lineage has the source."""
    from scribengin.state.lineage import read_lineage

    lineage = read_lineage(part)
    return lineage is not None and source in lineage.sources


def _skip(part: QueryFolder, flow: Flow, file: str) -> Iterator[dict[str, Any]]:
    """Remove the file from every log entry that no decided Batch uses."""
    from scribengin.connectors.files.pieces import pieces_of, root_of, without_file
    from scribengin.local.positions import decided_ends
    from scribengin.state.source_log import SourceLog

    ends = decided_ends(part)
    for source in (source for source in flow.sources.values() if source.type == "files"):
        log = SourceLog(part.sources, source.id)
        for number in range(ends.get(source.id, 0), log.length()):
            streams = log.read(number)
            roots = {flow.folder / root_of(stream) for stream in streams}
            pieces = [piece for stream in streams for piece in pieces_of(stream)]
            names = {
                piece.path
                for piece in pieces
                if piece.path == file or any((root / piece.path).resolve() == Path(file).resolve() for root in roots)
            }
            for name in names:
                streams = [left for stream in streams if (left := without_file(stream, name)) is not None]
                yield {"query": part.name, "source": source.id, "file": name, "bytes": sum(p.bytes for p in pieces if p.path == name)}
            if names:
                log.amend(number, streams)


def _positions(part: QueryFolder) -> list[dict[str, Any]]:
    from scribengin.local.positions import decided_ends
    from scribengin.state.decisions import Decisions
    from scribengin.state.lineage import read_lineage
    from scribengin.state.source_log import SourceLog

    lineage = read_lineage(part)
    assert lineage is not None
    newest = Decisions(part.decisions).newest()
    ends = decided_ends(part)
    rows = []
    for source in lineage.sources:
        log = SourceLog(part.sources, source)
        position = ends.get(source, 0)
        streams = log.read(position - 1) if position else []
        row = {"query": part.name, "source": source, "position": position, "logged": log.length()}
        rows.append(row | {"batch": newest.batch.number if newest else None, "last": streams[-1].label if streams else ""})
    return rows
