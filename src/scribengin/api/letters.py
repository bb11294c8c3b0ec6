"""Routes of the dead letters of a flow: list, repair, replay and purge, in a process on the host of the state."""

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query
from starlette.responses import Response

from scribengin.api.access import Role
from scribengin.api.answers import Text, from_state
from scribengin.api.plane import ApiRequest
from scribengin.api.state_queries import role_of
from scribengin.client.answer_models import (
    LetterCounts,
    LetterPage,
    LetterRepaired,
    LettersPurged,
    LettersReplayed,
    PurgeLetters,
    PurgeUndone,
    RepairLetter,
    ReplayLetters,
    UndoPurge,
)
from scribengin.control import reading
from scribengin.core.errors import Refused
from scribengin.core.moments import WRITE_MOMENT, not_a_time, parse_moment

MOST_LETTERS = 1000


def _chosen(
    query: Text = "", step: Text = "", reason: Text = "", prefix: Text = "", since: Text = "", until: Text = ""
) -> Mapping[str, str]:
    return {"query": query, "step": step, "reason": reason, "prefix": prefix, "since": _moment(since), "until": _moment(until)}


def _paged(after: Text = "", limit: Annotated[int, Query(ge=1, le=MOST_LETTERS)] = 100) -> Mapping[str, Any]:
    return {"after": after, "limit": limit}


Chosen = Annotated[Mapping[str, str], Depends(_chosen)]
Paged = Annotated[Mapping[str, Any], Depends(_paged)]


def letter_routes(may: Callable[[Role], Any]) -> APIRouter:
    """The routes; `may` returns the dependency that admits callers with a role."""
    routes = APIRouter(prefix="/v1/flows/{flow}/dead-letters", tags=["flows"])

    @routes.get("", response_model=LetterPage)
    def dead_letters(flow: str, asked: Annotated[ApiRequest, may(role_of("dead"))], chosen: Chosen, paged: Paged) -> Response:
        """The records that a step could not process, page by page: of a Query, a step, a reason, or whose id begins with `prefix`. `after`
        is the value from the page before. A page may have few dead letters, or none, and still have `after`: request the next page. The
        bytes of records are for operators and above."""
        said = {**chosen, **paged, "bytes": asked.who.role >= Role.OPERATOR}
        return from_state(asked, "dead", flow, said, LetterPage)

    @routes.get("/counts", response_model=LetterCounts)
    def dead_letter_counts(flow: str, asked: Annotated[ApiRequest, may(role_of("dead-counts"))], chosen: Chosen) -> Response:
        """The number of dead letters by Query, step and reason; the filters are those of a page."""
        return from_state(asked, "dead-counts", flow, chosen, LetterCounts)

    @routes.post("/replays", response_model=LettersReplayed)
    def replay(flow: str, body: ReplayLetters, asked: Annotated[ApiRequest, may(role_of("replay"))]) -> Response:
        """Replay dead letters: each only once, even if requested again. A worker replays them at its next check, or when it runs again."""
        return from_state(asked, "replay", flow, _said(body), LettersReplayed)

    @routes.post("/repairs", response_model=LetterRepaired)
    def repair(flow: str, body: RepairLetter, asked: Annotated[ApiRequest, may(role_of("repair"))]) -> Response:
        """Repair a dead letter in all Queries that refused it in the same way. The repair is kept until the replay, if the flow would
        accept it. Without `columns`, `text` and `text_base64` nothing is changed: the answer shows what can be repaired."""
        return from_state(asked, "repair", flow, asdict(body), LetterRepaired)

    @routes.post("/purges", response_model=LettersPurged)
    def purge(flow: str, body: PurgeLetters, asked: Annotated[ApiRequest, may(role_of("purge"))]) -> Response:
        """Delete dead letters; their number stays in the ledger. The flow must be stopped, except for a `dry_run`."""
        asked.check_flow(flow)
        if not body.dry_run:
            reading.check_stopped(asked.registry, flow)
        return from_state(asked, "purge", flow, _said(body), LettersPurged)

    @routes.post("/purges/undo", response_model=PurgeUndone)
    def undo_purge(flow: str, body: UndoPurge, asked: Annotated[ApiRequest, may(role_of("undo-purge"))]) -> Response:
        """Restore the dead letters that the newest purge deleted, or the purge of that id; within 7 days. The flow must be stopped."""
        asked.check_flow(flow)
        reading.check_stopped(asked.registry, flow)
        return from_state(asked, "undo-purge", flow, asdict(body), PurgeUndone)

    return routes


def _said(body: ReplayLetters | PurgeLetters) -> dict[str, Any]:
    return asdict(body) | {"since": _moment(body.since), "until": _moment(body.until)}


def _moment(text: str) -> str:
    """A time, or an age, as a time in UTC. Raises Refused if the text is neither."""
    try:
        return parse_moment(text).isoformat() if text else ""
    except ValueError:
        raise Refused(not_a_time(text), remedy=WRITE_MOMENT, code="time-unknown") from None
