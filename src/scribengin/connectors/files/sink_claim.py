"""Which flow may write into a folder: the last claim in `_scribengin/owner.json`."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from scribengin.connectors.files.sink_folders import INTERNAL, RESTORE, LineageFolder, lineages_in
from scribengin.core.errors import FencedError, Refused, SinkError, StateError
from scribengin.core.records import seal, unseal
from scribengin.core.remedies import add_to_outputs, beside_flow, beside_installation, beside_sink, start_over, write_beside
from scribengin.core.storage import folder_fault, names_in, put_if_absent, read_or_none, replace
from scribengin.core.time_text import now_text

if TYPE_CHECKING:
    from pathlib import Path

    from scribengin.connectors.contract import BatchId

_KIND, _FORMAT = "owner", 1


def check_folder(folder: Path, *, sink: str) -> None:
    """Raise SinkError if the folder, which need not exist yet, cannot be written to. Changes nothing."""
    fault = folder_fault(folder)
    if fault is not None:
        said = f'sink "{sink}": cannot write to {folder}: {fault[0]}'
        raise SinkError(said, remedy=fault[1], code="sink-folder", node=sink)


def check_apart(folder: Path, *, sink: str) -> None:
    """Check that a folder without a claim is neither inside another sink's folder, nor directly contains one: a reader of the outer one
    would read both. Raises Refused. Costs a check of each folder above and below; changes nothing."""
    if _is_claimed(folder):
        return
    folder = folder.resolve()
    outer = next(filter(_is_claimed, folder.parents), None)
    inner = None if outer else next((folder / name for name in sorted(names_in(folder)) if _is_claimed(folder / name)), None)
    found = outer or inner
    if found is not None:
        lies = f"{folder} {'lies in' if outer else 'contains'} {found}"
        raise Refused(
            f'sink "{sink}": {lies}, which is the folder of {_whose(found)}',
            remedy="give the sink another folder, beside that one",
            code="output-foreign",
        )


def _is_claimed(folder: Path) -> bool:
    return os.access(folder / INTERNAL / "owner.json", os.R_OK)


def _whose(folder: Path) -> str:
    """The sink that may write to a claimed folder, and its flow, as text; the flow is read from the commits."""
    claims = _read(folder / INTERNAL / "owner.json") or []
    newest = LineageFolder(folder / INTERNAL / claims[-1]["lineage"]).commits.newest_below(sys.maxsize) if claims else None
    of_flow = f' of flow "{newest[1]["flow"]}"' if newest is not None else ""
    return f'sink "{claims[-1]["sink"]}"{of_flow}' if claims else "another sink"


def claim(folder: Path, file: Path, *, owner: str, lineage: str, sink: str, flow: str, adopt: bool, looked: bool = False) -> None:
    """Claim a folder for a lineage, or confirm its claim.

    Args:
        folder: The folder.
        file: Its file of claims.
        owner: The installation.
        lineage: The lineage.
        sink: The id of the sink.
        flow: The flow.
        adopt: Claim it even if others have claimed it, or it contains files of others.
        looked: The caller knows that the folder contains no rows of others: files that look like a sink's are allowed.

    Raises:
        Refused: Without `adopt`: another flow, lineage or sink has claimed the folder, or it contains files of others. With `adopt`: a
            newer lineage has claimed it.
    """
    mine = {"owner": owner, "lineage": lineage, "sink": sink}
    claims = check_claimable(folder, file, owner=owner, lineage=lineage, sink=sink, flow=flow, adopt=adopt, looked=looked)
    if claims is None:
        if put_if_absent(file, seal(_KIND, _FORMAT, [mine | _since()])):
            return
        claims = check_claimable(folder, file, owner=owner, lineage=lineage, sink=sink, flow=flow, adopt=adopt, looked=True)
        assert claims is not None
    if not _same(claims[-1], mine):
        replace(file, seal(_KIND, _FORMAT, [*claims, mine | _since()]))


def check_claimable(
    folder: Path, file: Path, *, owner: str, lineage: str, sink: str, flow: str, adopt: bool, looked: bool = False
) -> list[dict[str, Any]] | None:
    """Check that a folder can be claimed; changes nothing.

    Args:
        folder: As in `claim`.
        file: As in `claim`.
        owner: As in `claim`.
        lineage: As in `claim`.
        sink: As in `claim`.
        flow: As in `claim`.
        adopt: As in `claim`.
        looked: As in `claim`.

    Returns:
        The claims of the folder; None if there is none.

    Raises:
        Refused: As in `claim`.
    """
    mine = {"owner": owner, "lineage": lineage, "sink": sink}
    claims = _read(file)
    if claims is None:
        strange = None if looked or adopt else _first_part(folder)
        if strange is not None:
            raise Refused(
                f'sink "{sink}": {folder} holds {strange}, written by an unknown writer',
                remedy=f"give the sink an empty folder, or move these files away; or {add_to_outputs()}",
                code="output-foreign",
            )
        return None
    if _same(claims[-1], mine):
        return claims
    if not adopt:
        # `reset --outputs` refuses these, so the remedy does not offer it
        check_flow(folder, sink=sink, flow=flow)
        check_clear(file, owner=owner, sink=sink)
        raise Refused(
            f'sink "{sink}": {folder} holds commits of {_difference(claims[-1], mine)}',
            remedy=f"{start_over()}; or {add_to_outputs()}",
            code="output-foreign",
        )
    if any(_same(each, mine) for each in claims):
        raise Refused(
            f'sink "{sink}": a newer lineage has taken {folder} over', remedy="run the flow that writes there now", code="output-foreign"
        )
    return claims


def check_claim(file: Path, *, owner: str, lineage: str, sink: str) -> None:
    """Check that a lineage may still write to a folder.

    Args:
        file: The folder's file of claims.
        owner: The installation.
        lineage: The lineage.
        sink: The id of the sink.

    Raises:
        FencedError: Another lineage has claimed the folder since.
        StateError: The file is missing.
    """
    claims = _read(file)
    mine = {"owner": owner, "lineage": lineage, "sink": sink}
    if claims is None:
        raise StateError(
            f"{file} is missing: the writer of this folder is unknown", remedy=f"restore the file, or {start_over(outputs=False)}"
        )
    if not _same(claims[-1], mine):
        raise FencedError(
            f'sink "{sink}": {file} names {_difference(claims[-1], mine)}', remedy="stop this driver; another driver writes there now"
        )


def check_same_place(folder: Path, newest: BatchId, *, sink: str) -> None:
    """Check that a folder contains the Batches of a flow: otherwise the flow wrote elsewhere, or its files are lost.

    Args:
        folder: The folder.
        newest: The newest Batch that the flow has decided for the sink.
        sink: The id of the sink.

    Raises:
        StateError: The folder contains no Batch of that lineage.
    """
    place = LineageFolder(folder / INTERNAL / newest.lineage)
    if place.commits.newest() is None and not (place.staged / f"{newest.number:010d}").exists():
        raise StateError(
            f'sink "{sink}": {folder} holds no Batch of this flow, which has decided Batch {newest.number}',
            remedy=f"if the sink's `path` was changed: restore its old value, or move the earlier folder to {folder}, or "
            f"{write_beside(sink)}; else {RESTORE}",
        )


def check_flow(folder: Path, *, sink: str, flow: str) -> None:
    """Check that no other flow has written into a folder.

    Args:
        folder: The folder.
        sink: The id of the sink.
        flow: The flow.

    Raises:
        Refused: Another flow has written into it.
    """
    flows = (record["flow"] for lineage in lineages_in(folder) for _, record in lineage.commits.since())
    other = next((name for name in flows if name != flow), None)
    if other is not None:
        raise Refused(
            f'sink "{sink}": {folder} holds commits of the flow "{other}"',
            remedy=beside_flow("folder", other),
            code="output-foreign",
        )


def check_clear(file: Path, *, owner: str, sink: str) -> None:
    """Check that this installation may delete a folder that no other flow wrote to. Data of an installation to whose lineage another one
    was added is deleted with the rest.

    Args:
        file: The folder's file of claims.
        owner: The installation.
        sink: The id of the sink.

    Raises:
        Refused: The installation's claim is not the newest, or another sink has claimed the folder.
    """
    claims = _read(file) or []
    for each in claims:
        if each["sink"] != sink or claims[-1]["owner"] != owner:
            theirs = claims[-1]["owner"] != owner
            what = _difference(claims[-1], {"owner": owner}) if theirs else f'the sink "{each["sink"]}"'
            raise Refused(
                f'sink "{sink}": {file.parent.parent} holds commits of {what}',
                remedy=beside_installation("folder", same_flow=True) if theirs else beside_sink("folder", each["sink"]),
                code="output-foreign",
            )


def last_lineage(file: Path) -> str:
    """The lineage that may write now; empty if the folder is not claimed."""
    claims = _read(file)
    return claims[-1]["lineage"] if claims else ""


def lineage_before(file: Path, lineage: str) -> str:
    """The lineage that wrote to the folder before `lineage` claimed it; empty if there is none."""
    names = [each["lineage"] for each in _read(file) or ()]
    before = names[: names.index(lineage)] if lineage in names else names
    return before[-1] if before else ""


def lineages_newest_first(file: Path) -> list[str]:
    """All lineages that have claimed the folder, the newest claim first."""
    return list(dict.fromkeys(each["lineage"] for each in reversed(_read(file) or [])))


def _read(file: Path) -> list[dict[str, Any]] | None:
    data = read_or_none(file)
    return None if data is None else unseal(data, _KIND, _FORMAT, file)


def _same(claim: dict[str, Any], mine: dict[str, Any]) -> bool:
    return all(claim[name] == value for name, value in mine.items())


def _difference(claim: dict[str, Any], mine: dict[str, Any]) -> str:
    if claim["owner"] != mine["owner"]:
        return f'another installation (sink "{claim["sink"]}", lineage {claim["lineage"]}, since {claim["since"]})'
    return f'another lineage ({claim["lineage"]} of sink "{claim["sink"]}", since {claim["since"]})'


def _since() -> dict[str, str]:
    return {"since": now_text()}


def _first_part(folder: Path) -> str | None:
    """A file that looks like a sink's file, in the folder or one partition below."""
    for name in sorted(names_in(folder)):
        if name.startswith("part-"):
            return name
        if "=" in name and (parts := [part for part in names_in(folder / name) if part.startswith("part-") or "=" in part]):
            return f"{name}/{parts[0]}"
    return None
