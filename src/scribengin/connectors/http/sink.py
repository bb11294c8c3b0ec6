"""The sink: tasks stage requests; after the decision the driver sends them, with keys that depend only on the decision."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING
from urllib.parse import urldefrag

from scribengin.connectors.contract import RefusedRow
from scribengin.connectors.http.endpoint import Endpoint, key_of
from scribengin.connectors.http.sending import HttpSender, RequestProgress, Rest
from scribengin.connectors.http.staged import RequestCut, StagedRequests, read_requests
from scribengin.connectors.plain.sink import PlainSink

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from scribengin.connectors.contract import BatchId, ConnectorContext, Decided
    from scribengin.connectors.http.staged import RowsRequest
    from scribengin.connectors.plain.marks import Marks
    from scribengin.core.types import Schema

_CHECK_S = 1.0


class HttpSink(PlainSink):
    """A `type: http` sink; an OfferingSink."""

    def __init__(self, place: ConnectorContext) -> None:
        super().__init__(place)
        options = place.options
        self.on_error = place.on_error
        self._endpoint = Endpoint(place.node, place.folder, options)
        one = options["body"] == "object"
        self._cut = RequestCut(urldefrag(options["url"]).url, 1 if one else options["rows"], options["bytes"])
        self._connections: int = options["connections"]
        self._patience_s: float = options["patience"]
        self._rest = Rest()

    def __str__(self) -> str:
        return str(self._endpoint)

    def check(self) -> None:
        """Check that the options are valid for a client. No request is sent, because its effect on the server is unknown."""
        self._endpoint.check()

    def check_place(self) -> None:
        """See PlaceChecking. A connection is opened, and no request is sent."""
        self._endpoint.check()
        self._endpoint.reach()

    def check_ready(self, *, claimed: bool) -> None:  # noqa: ARG002 (what it was given stands in the flow's state)
        """See `group.contract.MemberSink`; the same as `check_place`."""
        self.check_place()

    def stream(self, batch: BatchId, unit: int, attempt: str, schema: Schema) -> StagedRequests:  # noqa: ARG002 (the contract's)
        """A stream that stages one task output."""
        return StagedRequests(self.node, self._marks(batch.lineage).folder(batch.number), unit, attempt, self._cut)

    def offer(self, decided: Decided, refuse: Callable[[RefusedRow], None]) -> None:
        """Send the decided requests that were not answered yet. It is checked regularly that this process may continue."""
        batch, marks = decided.batch, self._marks(decided.batch.lineage)
        if self._is_done(decided, marks):
            return
        looked = time.monotonic()

        def check_turn() -> None:
            nonlocal looked
            if time.monotonic() - looked > _CHECK_S:
                self._is_done(decided, marks)
                looked = time.monotonic()

        def refused(request: RowsRequest, reason: str, message: str) -> None:
            refuse(RefusedRow(request.made_of[0].as_py(), reason, message, request.docs[0].as_py()))

        def key(request: RowsRequest) -> str:
            return key_of(self._owner, batch.flow, self.node, batch.lineage, batch.number, request.unit, request.first, len(request))

        with self._endpoint.opened(), RequestProgress(marks.folder(batch.number)) as progress:
            if progress.resumed:
                self._notes.append(
                    f'sink "{self.node}": batch {batch.number} resumes after {progress.resumed:,} answered requests; up to '
                    f"{self._connections} requests that were in progress are sent again with the same keys"
                )
            sending = HttpSender(self._endpoint, progress, self._rest, self._connections, self._patience_s, key, refused, check_turn)
            sending.send(self._requests(decided, marks))

    def give(self, decided: Decided, marks: Marks) -> int:  # noqa: ARG002 (see PlainSink)
        """Does nothing, because all rows were offered."""
        return 1

    def _requests(self, decided: Decided, marks: Marks) -> Iterator[RowsRequest]:
        folder = marks.folder(decided.batch.number)
        for receipt in decided.receipts:
            for segment in receipt.segments:
                yield from read_requests(folder, segment, receipt.unit, self.node)
