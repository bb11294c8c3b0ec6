"""Common parts of the streams of all Kafka sinks: rows become messages, which each kind of stream handles differently."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Protocol

from scribengin.core import faults
from scribengin.formats.constants import DIGESTS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa
    from typing_extensions import TypeIs

    from scribengin.connectors.kafka.outgoing import Outgoing
    from scribengin.formats.contract import Bad
    from scribengin.formats.origins import Origins


class RowMaker(Protocol):
    """Makes messages from rows; also returns the errors of rows that give no message, by their index."""

    wants_ids: bool
    json_needs: Sequence[str] | None
    """see the contract's JsonStream"""

    def make(self, rows: pa.RecordBatch, ids: Sequence[str] | None) -> tuple[Outgoing, Sequence[Bad]]:
        """The messages of the rows, in order."""

    def make_json(
        self, lines: bytes, rows: int, columns: Mapping[str, pa.Array], ids: Sequence[str] | None
    ) -> tuple[Outgoing, Sequence[Bad]]:
        """The same for rows in JSON form; never called if `json_needs` is None."""


class OriginMaker(Protocol):
    """Makes messages from rows and their first coordinates; returns as a RowMaker does."""

    def make_from(self, rows: pa.RecordBatch, origins: Origins) -> tuple[Outgoing, Sequence[Bad]]:
        """The messages of the rows."""


class MessageStream(ABC):
    """See the contract's SinkStream and JsonStream; with an OriginMaker it is an OriginStream instead, which does not need the arguments of
    `write`."""

    wants_ids = False
    json_needs: Sequence[str] | None = None

    def __init__(self, maker: RowMaker | OriginMaker) -> None:
        self.maker = maker
        self.wants_origins = _is_of_origins(maker)
        if _is_of_origins(maker):
            self._make_from = maker.make_from
        else:
            self.wants_ids, self.json_needs = maker.wants_ids, maker.json_needs
            self._make, self._make_json = maker.make, maker.make_json
        self.digest: int | None = None
        """the digest of all row ids so far, if messages have ids"""

    def write(self, batch: pa.RecordBatch, ids: Sequence[str] | None = None) -> Sequence[Bad]:
        """Accept the rows' messages."""
        return self._taken(*self._make(batch, ids))

    def write_json(self, lines: bytes, rows: int, columns: Mapping[str, pa.Array], ids: Sequence[str] | None = None) -> Sequence[Bad]:
        """The same for rows in JSON form."""
        return self._taken(*self._make_json(lines, rows, columns, ids))

    def write_from(self, batch: pa.RecordBatch, origins: Origins) -> Sequence[Bad]:
        """The same for rows with their first coordinates."""
        return self._taken(*self._make_from(batch, origins))

    @abstractmethod
    def keep(self, messages: Outgoing) -> None:
        """Send, stage or pass on some messages, perhaps none."""

    def _taken(self, messages: Outgoing, bad: Sequence[Bad]) -> Sequence[Bad]:
        if messages.digest is not None:
            self.digest = ((self.digest or 0) + messages.digest) % DIGESTS
        self.keep(messages)
        faults.reached("stage.mid_write")
        return bad


def _is_of_origins(maker: RowMaker | OriginMaker) -> TypeIs[OriginMaker]:
    return hasattr(maker, "make_from")
