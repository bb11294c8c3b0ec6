"""The common parts of the streams of all Kafka sinks: they convert rows to messages, which each kind of stream handles differently."""

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
    """Converts rows to messages, and returns the errors of the rows that cannot be converted, with their indexes."""

    wants_ids: bool
    json_needs: Sequence[str] | None
    """see the contract's JsonStream"""

    def make(self, rows: pa.RecordBatch, ids: Sequence[str] | None) -> tuple[Outgoing, Sequence[Bad]]:
        """Convert rows to messages, in order. `ids` are the row ids, None unless `wants_ids`."""

    def make_json(
        self, lines: bytes, rows: int, columns: Mapping[str, pa.Array], ids: Sequence[str] | None
    ) -> tuple[Outgoing, Sequence[Bad]]:
        """Convert rows in JSON form; never called if `json_needs` is None.

        Args:
            lines: The rows as JSON objects, one per line.
            rows: The number of rows.
            columns: The columns of `json_needs`.
            ids: The row ids; None unless `wants_ids`.
        """


class OriginMaker(Protocol):
    """Converts rows with their origins to messages; returns the same as a RowMaker."""

    def make_from(self, rows: pa.RecordBatch, origins: Origins) -> tuple[Outgoing, Sequence[Bad]]:
        """Convert rows to messages, in order."""


class MessageStream(ABC):
    """A SinkStream and JsonStream of the contract; with an OriginMaker an OriginStream, of which `write_from` is used instead of
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
        """Convert the rows to messages and pass them to `keep`; returns the refused rows."""
        return self._taken(*self._make(batch, ids))

    def write_json(self, lines: bytes, rows: int, columns: Mapping[str, pa.Array], ids: Sequence[str] | None = None) -> Sequence[Bad]:
        """Do the same for rows in JSON form."""
        return self._taken(*self._make_json(lines, rows, columns, ids))

    def write_from(self, batch: pa.RecordBatch, origins: Origins) -> Sequence[Bad]:
        """Do the same for rows with their origins."""
        return self._taken(*self._make_from(batch, origins))

    @abstractmethod
    def keep(self, messages: Outgoing) -> None:
        """Send, stage or collect some messages, of which there may be none."""

    def _taken(self, messages: Outgoing, bad: Sequence[Bad]) -> Sequence[Bad]:
        if messages.digest is not None:
            self.digest = ((self.digest or 0) + messages.digest) % DIGESTS
        self.keep(messages)
        faults.reached("stage.mid_write")
        return bad


def _is_of_origins(maker: RowMaker | OriginMaker) -> TypeIs[OriginMaker]:
    return hasattr(maker, "make_from")
