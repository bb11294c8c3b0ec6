"""What only Thrift servers do: answers without a reason, the older version, connections that end while nobody uses them."""

from __future__ import annotations

import socket
from contextlib import contextmanager
from threading import Thread
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from thriftpy2.thrift import TApplicationException

from scribengin.connectors.hbase import thrift
from scribengin.connectors.hbase.gateway import open_gateway
from scribengin.connectors.hbase.gateway_contract import HBaseCell, HBaseRow
from scribengin.connectors.hbase.thrift import Connection, api
from scribengin.connectors.keyed.contract import KeyedRows
from scribengin.core.errors import SourceError, Unreachable
from scribengin.core.types import arrow_schema
from tests.connectors.hbase.test_sink import SIMPLE, decided, make, offered, rows_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.connectors.hbase.conftest import Table

THRIFT = pytest.mark.parametrize("table", ["thrift"], indirect=True)
ROW = HBaseRow(b"r", [HBaseCell(b"d:tag", value=b"1")])


def struck(monkeypatch: pytest.MonkeyPatch, *, times: int) -> list[int]:
    """The server's trouble: so many calls that put rows fail without a reason. How many bytes each of all calls had."""
    put, sent = Connection.put, list[int]()

    def failing(self: Connection, message: bytes) -> None:
        sent.append(len(message))
        if len(sent) <= times:
            raise TApplicationException(TApplicationException.INTERNAL_ERROR, "Internal error processing putMultiple")
        put(self, message)

    monkeypatch.setattr(Connection, "put", failing)
    return sent


@THRIFT
def test_rows_are_not_given_up_for_an_error_that_the_server_has_for_once(
    table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = make(table, tmp_path)
    sink.prepare(owner="me", lineage="lineage-1")
    offered(sink, decided(sink, 0, rows_of(0)))
    sent = struck(monkeypatch, times=4)
    assert offered(sink, decided(sink, 1, rows_of(*range(1, 9)))) == []
    assert sorted(int(row["id"]) for row in table.rows()) == list(range(9))
    assert sent[0] > sent[1] > sent[2] > sent[3] == sent[4]  # halves, down to a row, which is sent once more


@THRIFT
def test_a_row_is_given_up_when_a_server_that_answers_has_refused_it_twice(
    table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = make(table, tmp_path)
    sink.prepare(owner="me", lineage="lineage-1")
    offered(sink, decided(sink, 0, rows_of(0)))
    sent = struck(monkeypatch, times=2)
    (refused,) = offered(sink, decided(sink, 1, rows_of(1)))
    assert (refused.reason, len(sent)) == ("refused", 2)
    assert "Internal error processing putMultiple" in refused.message


@THRIFT
def test_what_a_server_names_at_the_second_time_is_told_as_at_the_first(
    table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = make(table, tmp_path)
    sink.prepare(owner="me", lineage="lineage-1")
    offered(sink, decided(sink, 0, rows_of(0)))
    sent: list[int] = []

    def failing(_: Connection, message: bytes) -> None:
        sent.append(len(message))
        if len(sent) == 1:
            raise TApplicationException(TApplicationException.INTERNAL_ERROR, "Internal error processing putMultiple")
        raise api().TIOError(message="Failed 1 action: IOException: 1 time, servers with issues: null", canRetry=True)

    monkeypatch.setattr(Connection, "put", failing)
    with pytest.raises(Unreachable, match="answered putMultiple with: Failed 1 action: IOException"):
        sink._store.send(KeyedRows(["k"], ["source/a+1"], 7, pa.RecordBatch.from_pylist(rows_of(1), schema=arrow_schema(SIMPLE))))
    assert len(sent) == 2


@THRIFT
def test_an_exchange_whose_answer_is_lost_is_not_sent_again(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    table.make()
    gateway = open_gateway("kept", [table.server], {})
    call, lost = Connection.call, list[str]()

    def losing(self: Connection, method: str, *given: Any) -> Any:
        answer = call(self, method, *given)
        if method == "checkAndPut" and not lost:
            lost.append(method)
            raise ConnectionResetError("the answer is lost")
        return answer

    monkeypatch.setattr(Connection, "call", losing)
    with pytest.raises(Unreachable, match="the answer is lost"):
        gateway.put_if(table.name, ROW, HBaseCell(b"d:tag"))
    assert [cell.value for cell in gateway.row(table.name, "r").cells] == [b"1"]  # type: ignore[union-attr]
    assert gateway.put_if(table.name, ROW, HBaseCell(b"d:tag")) is False
    gateway.close()


@THRIFT
def test_a_connection_that_the_server_ended_meanwhile_is_no_error(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    table.make()
    gateway = open_gateway("kept", [table.server], {})
    assert gateway.is_empty(table.name)
    assert gateway._pool is not None  # type: ignore[attr-defined]
    (held,) = gateway._pool._idle  # type: ignore[attr-defined]
    held._socket.shutdown(socket.SHUT_RDWR)
    assert gateway.is_empty(table.name)  # what may be asked twice is
    monkeypatch.setattr(thrift, "_FRESH_S", -1.0)
    assert gateway.put_if(table.name, ROW, HBaseCell(b"d:tag"))  # and what may not goes by one that was not idle
    gateway.close()


def test_a_server_of_version_1_is_told() -> None:
    with answering(TApplicationException.UNKNOWN_METHOD, "Invalid method name: 'tableExists'") as address:
        gateway = open_gateway("in", [address], {}, "source")
        with pytest.raises(SourceError, match="does not know tableExists: it speaks version 1") as told:
            gateway.schema("orders")
        assert "hbase thrift2 start" in told.value.remedy
        gateway.close()


def test_what_a_server_does_not_name_may_pass_where_nothing_is_put() -> None:
    with answering(TApplicationException.INTERNAL_ERROR, "Internal error processing tableExists") as address:
        gateway = open_gateway("in", [address], {}, "source")
        with pytest.raises(Unreachable, match="answered tableExists with: Internal error processing tableExists"):
            gateway.schema("orders")
        gateway.close()


@contextmanager
def answering(kind: int, text: str) -> Iterator[str]:
    """A server that has this error for each call."""
    name, said = b"tableExists", text.encode()
    reason = b"\x0b\0\1" + len(said).to_bytes(4) + said + b"\x08\0\2" + kind.to_bytes(4) + b"\0"
    answer = b"\x80\x01\0\3" + len(name).to_bytes(4) + name + bytes(4) + reason

    def serve() -> None:
        while True:
            try:
                client, _ = door.accept()
            except OSError:
                return
            with client:
                while client.recv(4096):
                    client.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as door:
        thread = Thread(target=serve, daemon=True)
        thread.start()
        yield f"thrift://127.0.0.1:{door.getsockname()[1]}"
        door.shutdown(socket.SHUT_RDWR)
        thread.join(60)
