"""Reads rows of a table in row key order, even if servers and regions fail meanwhile.

A scanner exists in one gateway. If a region is unavailable, the scanner of a REST server ends as if there were no more rows
(`ScannerResultGenerator` of HBase only logs such an error), and every scanner is lost with its server. So the end of a scanner is only
accepted if it agrees with the last key of the table. That key is read from the other end of the table, by a request that reports failures,
and whose answer can contain keys of any bytes.
"""

from __future__ import annotations

import time
from contextlib import closing
from typing import TYPE_CHECKING, Any, Generic

from scribengin.connectors.hbase.gateway_contract import CODES, AnyRow, ScanRequest
from scribengin.core.errors import Unreachable

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

    from scribengin.connectors.hbase.gateway_contract import Gateway, Part

_TRIES_FOR_S = 60.0
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.1, 5.0
_FIRST_ROWS = 100
_LOOKED_AT = 10
_ANSWER_BYTES = 4 << 20
"""maximum size of the rows of an answer, which a gateway and this process hold in memory"""


class HBaseScan(Generic[AnyRow]):
    """Scans one table; used by one thread.

    Args:
        cluster: The gateway.
        table: The name of the table.
        kind: The type of the rows.
        page: The maximum number of rows in an answer; answers have fewer rows if these are large.
        columns: FAMILY:QUALIFIER or FAMILY; only rows with a cell in one of them are returned. Empty: all rows.
        part: Which part of each row is returned; see ScanRequest.
    """

    def __init__(
        self,
        cluster: Gateway,
        table: str,
        kind: type[AnyRow],
        *,
        page: int,
        columns: Sequence[bytes] = (),
        part: Part = "all",
    ) -> None:
        self._cluster = cluster
        self._table = table
        self._columns = columns
        self._page = page
        self._most = min(page, _FIRST_ROWS)
        self._kind: type[AnyRow] = kind
        self._part = part
        self._narrow: bool | None = None if any(b":" in column for column in columns) else False
        """True if no row so far has other cells in the families of the columns; None before the check"""

    def pages(self, after: bytes, upto: bytes | None = None, rows: int | None = None) -> Iterator[list[AnyRow]]:
        """The rows with keys from `after` (exclusive) to `upto` (inclusive; None: to the end of the table), in pages.

        A failed request is retried for a minute; then Unreachable is raised. Raises SourceError or SinkError if the table does not exist.
        `rows` is the expected number of rows: the last request asks for no more than that, unless there are more.
        """
        seen, left = after, rows
        wait_s, ends_s = _FIRST_WAIT_S, time.monotonic() + _TRIES_FOR_S
        while True:
            failed = None
            try:
                with closing(self._by_scanner(seen, left)) as pages:
                    for page in pages:
                        wait_s, ends_s = _FIRST_WAIT_S, time.monotonic() + _TRIES_FOR_S
                        seen = page[-1].key
                        if upto is not None and seen >= upto:
                            if inside := [row for row in page if row.key <= upto]:
                                yield inside
                            return
                        left = None if left is None or left <= len(page) else left - len(page)
                        yield page
                last = self._cluster.last_key(self._table, self._columns)
                if last is None or last <= seen:
                    return
            except Unreachable as error:
                failed = error
                self._most = max(1, self._most // 2)  # perhaps this many rows take too long
            if time.monotonic() + wait_s > ends_s:
                raise failed or self._ends_early(seen)
            time.sleep(wait_s)
            wait_s = min(2 * wait_s, _LONGEST_WAIT_S)

    def _by_scanner(self, after: bytes, rows: int | None) -> Generator[list[AnyRow]]:
        """Read pages until the scanner ends. It also ends if it has lost its region, or does not exist any more."""
        if self._narrow is None:
            self._narrow = self._has_no_others(after)
        scanner = self._opened(after, self._part, self._page, by_family=self._narrow)
        try:
            while True:
                most = self._most if rows is None else min(self._most, rows)
                answer = self._cluster.next_of(scanner, most, self._kind)
                if answer is None:
                    return
                page, size = answer
                if self._narrow and not self._has_wanted_alone(page):
                    self._narrow = False
                    return
                yield page
                if len(page) < most:
                    return
                self._most = max(1, min(self._page, 2 * self._most, len(page) * _ANSWER_BYTES // size))
                rows = None if rows is None or rows <= len(page) else rows - len(page)
        finally:
            self._cluster.close_scanner(scanner)

    def _opened(self, after: bytes, part: Part, ahead: int, *, by_family: bool) -> Any:
        """Open a scanner. With `by_family` whole families are requested: a server that is asked for single columns seeks each of them in
        each row, which takes two to four times as long if the families have no other cells."""
        columns = sorted({column.partition(b":")[0] for column in self._columns}) if by_family else self._columns
        return self._cluster.open_scanner(self._table, ScanRequest(after, columns, part, ahead))

    def _has_no_others(self, after: bytes) -> bool:
        """True if the families of the columns have no other cells in the next rows. Only names are read, because other cells may be
        large."""
        scanner = self._opened(after, "names", _LOOKED_AT, by_family=True)
        try:
            answer = self._cluster.next_of(scanner, _LOOKED_AT, self._kind)
        finally:
            self._cluster.close_scanner(scanner)
        return answer is not None and self._has_wanted_alone(answer[0])

    def _has_wanted_alone(self, rows: Sequence[AnyRow]) -> bool:
        return {cell.column for row in rows for cell in row.cells} <= set(self._columns)

    def _ends_early(self, seen: bytes) -> Unreachable:
        return Unreachable(
            (
                f"{self._cluster.called}: scanners of {self._table} at {self._cluster} end after row {shown(seen)}, although there are "
                "more rows"
            ),
            remedy="check that all regions of the table are online; if several gateways share an address, name each one in `server`, "
            "because the requests of a scanner must go to the same server; a running flow retries automatically",
            code=CODES.away,
            node=self._cluster.node,
        )


def shown(key: bytes) -> str:
    r"""A row key for people, in the notation of the HBase shell.

    >>> shown(b"c1/\x00\xff")
    'c1/\\x00\\xFF'
    """
    return "".join(chr(byte) if 32 <= byte < 127 and byte != ord("\\") else f"\\x{byte:02X}" for byte in key)
