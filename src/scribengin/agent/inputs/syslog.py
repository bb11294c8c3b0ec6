"""The input `syslog`: messages over UDP, TCP or TLS, in the formats of RFC 5424 and RFC 3164.

Over UDP a record is a datagram. Over TCP and TLS each message has its own framing (RFC 6587): it is counted if it begins with a number, a
blank and `<`, else it ends with a line feed or NUL; `framing: octet` or `newline` demands one of them. With `parse: true` a record is a
JSON object, as `scribengin.agent.inputs.syslog_message` describes; else it is the message as it came, with the sender as its origin.

Syslog has no answer for single messages: those that were received, and not durable in the write-ahead log when the agent or its host
crashed, are lost; over TCP those in the kernels of both sides, too. That is the limit of the protocol. While the lane takes no records,
TCP senders wait; datagrams are kept in memory up to `UDP_BYTES`, then in the kernel's buffer. A datagram that finds no room is dropped:
it is counted (the kernel's count is read from /proc/net/udp), reported, and takes a number as a `lost` record, so that the flow counts
it.

UDP cannot show who sends. Beyond loopback it needs `insecure: true`, and so does TCP; TLS needs `client_ca`, or `insecure: true`.
"""

from __future__ import annotations

import re
import socket
import threading
import time
from collections import deque
from contextlib import suppress
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec

from scribengin.agent.inputs import InputReport, RecordChunk
from scribengin.agent.inputs.line_streams import OriginJoiner, RecordBlock, origin_of, too_long
from scribengin.agent.inputs.sockets import (
    LOG,
    ListenPlace,
    RetryTimes,
    ServerCertificate,
    StreamServer,
    bind,
    listen_place,
    refuse_exposure,
    sender_of,
    why_not_bound,
)
from scribengin.agent.inputs.syslog_message import parse_syslog
from scribengin.core.errors import EnvironmentFault

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scribengin.wire.frames import FrameOrigin
    from scribengin.wire.protocol import LaneConfig

UDP_BYTES = 32 * 2**20
"""datagrams that wait for the lane, with what each costs besides"""
KERNEL_BYTES = 8 * 2**20
"""the receive buffer that is asked of the kernel"""
_DATAGRAM_COST = 200
_COUNTED = re.compile(rb"([1-9]\d{0,9}) ")
_COUNTED_START = re.compile(rb"[1-9]\d{0,9} <")
_TRAILER = re.compile(rb"[\n\0]")
_COUNTED_LATER = re.compile(rb"[\n\0][1-9]\d{0,9} <")
_MAYBE_COUNTED = re.compile(rb"[1-9]\d{0,9} ?")
_encode = msgspec.json.Encoder().encode


# Framing.


class SyslogFraming:
    """The messages of one connection, whose bytes come cut anywhere."""

    def __init__(self, framing: str, max_record: int) -> None:
        """`framing`: `auto`, `octet` or `newline`."""
        self._framing = framing
        self._most = max_record
        self._kept = b""
        self.unknown = False
        """True if a message does not have the framing that was demanded: then it is unknown where the next one begins"""
        self._left = 0
        """bytes of a counted message that is too long, or the rest of a line that is (-1)"""

    def feed(self, data: bytes) -> list[bytes]:
        """The messages that `data` ends, without their framing; of one that is too long `max_record` + 1 bytes."""
        if self._left:
            data = self._skip(data)
        data = self._kept + data
        found: list[bytes] = []
        at, size = 0, len(data)
        while at < size:
            if self._framing == "octet" and data[at] in b"\r\n\0":  # some senders end a counted message with a line feed, too
                at += 1
                continue
            counted = self._counted(data, at)
            if counted is None or self.unknown:
                break
            if counted:
                head = _COUNTED.match(data, at)
                assert head is not None
                end = head.end() + int(head[1])
                if int(head[1]) > self._most:
                    if size < head.end() + self._most + 1:
                        break
                    found.append(data[head.end() : head.end() + self._most + 1])
                    self._left = max(0, end - size)
                elif end > size:
                    break
                else:
                    found.append(data[head.end() : end])
                at = min(end, size)
                continue
            ended = _TRAILER.search(data, at)
            if ended is None:
                if size - at <= self._most:
                    break
                found.append(data[at : at + self._most + 1])
                self._left = -1
                at = size
                continue
            later = None if self._framing == "newline" else _COUNTED_LATER.search(data, ended.start())
            stop = max(data.rfind(b"\n"), data.rfind(b"\0")) + 1 if later is None else later.start() + 1
            lines = data[at : stop - 1]
            found += [line[: self._most + 1] for line in (_TRAILER.split(lines) if b"\0" in lines else lines.split(b"\n"))]
            at = stop
        self._kept = data[at:]
        return [message for message in found if message not in (b"", b"\r")]

    def end(self) -> list[bytes]:
        """The begin of a message that was not ended."""
        kept, self._kept, self._left = self._kept, b"", 0
        if self._framing != "newline" and _COUNTED_START.match(kept):
            kept = kept.partition(b" ")[2]
        return [kept[: self._most + 1]] if kept.strip(b"\r\n\0") else []

    def _skip(self, data: bytes) -> bytes:
        if self._left > 0:
            skipped = min(self._left, len(data))
            self._left -= skipped
            return data[skipped:]
        ended = _TRAILER.search(data)
        if ended is None:
            return b""
        self._left = 0
        return data[ended.end() :]

    def _counted(self, data: bytes, at: int) -> bool | None:
        """True if the message there is counted; None if that cannot be known yet."""
        if self._framing == "newline":
            return False
        if self._framing == "octet":
            if _COUNTED.match(data, at):
                return True
            self.unknown = not _MAYBE_COUNTED.fullmatch(data, at)
            return None
        if _COUNTED_START.match(data, at):
            return True
        return None if _MAYBE_COUNTED.fullmatch(data, at) else False


# UDP.


class DatagramReader:
    """A thread that takes datagrams from the kernel as they come, so that a lane that is busy for a moment costs none."""

    def __init__(self, place: ListenPlace) -> None:
        """Begin to receive. Raises OSError."""
        self._socket = bind(place, socket.SOCK_DGRAM)
        self.kernel_bytes = _enlarge(self._socket)
        self._socket.settimeout(0.5)
        self.port: int = self._socket.getsockname()[1]
        self._waiting: deque[tuple[bytes, str]] = deque()
        self._received = 0
        self._taken = 0
        self._arrived = threading.Event()
        self._closing = False
        self.refused = 0
        """datagrams that found no room in memory"""
        self._inode = str(self._inode_of())
        self._thread = threading.Thread(target=self._receive, name=f"syslog {place}", daemon=True)
        self._thread.start()

    @property
    def backlog_bytes(self) -> int:
        """The bytes that wait, with what each datagram costs besides."""
        return self._received - self._taken

    def take(self, most_bytes: int) -> list[tuple[bytes, str]]:
        """Datagrams and their senders, in the order in which they came."""
        found: list[tuple[bytes, str]] = []
        size = 0
        self._arrived.clear()
        while size < most_bytes:
            try:
                each = self._waiting.popleft()
            except IndexError:
                break
            found.append(each)
            size += len(each[0])
        self._taken += size + len(found) * _DATAGRAM_COST
        return found

    def wait(self, timeout_s: float) -> None:
        """Until a datagram is there, or the time is over."""
        if not self._waiting:
            self._arrived.wait(timeout_s)

    def dropped_by_kernel(self) -> int:
        """Datagrams that found no room in the kernel's buffer; 0 on systems without /proc/net/udp."""
        for table in ("/proc/net/udp", "/proc/net/udp6"):
            with suppress(OSError):
                for line in Path(table).read_text().splitlines()[1:]:
                    fields = line.split()
                    if fields[9] == self._inode:
                        return int(fields[-1])
        return 0

    def close(self) -> None:
        """End the thread, and close the port."""
        self._closing = True
        self._thread.join(5)
        self._socket.close()

    def _inode_of(self) -> int:
        import os

        return os.fstat(self._socket.fileno()).st_ino

    def _receive(self) -> None:
        receive, waiting, arrived = self._socket.recvfrom, self._waiting, self._arrived
        while not self._closing:
            try:
                data, address = receive(65536)
            except TimeoutError:
                continue
            except OSError as error:
                LOG.warning("syslog: a datagram was not received: %s", error)
                time.sleep(0.1)
                continue
            cost = len(data) + _DATAGRAM_COST
            if self._received - self._taken + cost > UDP_BYTES:
                self.refused += 1
                continue
            self._received += cost
            waiting.append((data, sender_of(address)))
            if not arrived.is_set():
                arrived.set()


def _enlarge(udp: socket.socket) -> int:
    """Ask for a large receive buffer; returns the bytes that the kernel gives."""
    for option in (getattr(socket, "SO_RCVBUFFORCE", 33), socket.SO_RCVBUF):
        with suppress(OSError):
            udp.setsockopt(socket.SOL_SOCKET, option, KERNEL_BYTES)
            break
    return udp.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) // 2


# The input.


class SyslogInput:
    """Syslog messages; see `scribengin.agent.inputs.RecordInput`."""

    def __init__(self, lane: LaneConfig) -> None:
        options = lane.options
        where = f"{lane.flow}.{lane.source}"
        self._lane = lane
        self.place = listen_place(where, str(options.get("listen") or "udp://127.0.0.1:5140"), scheme="udp", schemes=("udp", "tcp", "tls"))
        self._framing = str(options.get("framing") or "auto")
        self._parse = bool(options.get("parse", True))
        self._zone = _zone_of(where, str(options.get("zone") or ""))
        certificate = ServerCertificate(options if self.place.scheme == "tls" else {})
        if self.place.scheme == "tls" and not certificate.wanted:
            raise EnvironmentFault(f"{where}: certificate is missing; {self.place} needs one", remedy="set `certificate` and `key`")
        refuse_exposure(
            where,
            self.place,
            secured=certificate.wanted and certificate.asks_clients,
            insecure=bool(options.get("insecure")),
            need="use tls:// with `client_ca`, so that senders show a certificate; or ",
        )
        self._joiner = OriginJoiner(lane)
        self._origin = origin_of(lane, str(self.place))
        self._message = ""
        self._retry = RetryTimes()
        self._lost = 0
        """datagrams that were reported as lost"""
        self._counted = 0.0
        self.server: StreamServer | None = None
        self.datagrams: DatagramReader | None = None
        if self.place.scheme == "udp":
            self._open()
        else:
            self.server = StreamServer(self.place, certificate)

    @property
    def port(self) -> int:
        """On which it listens; 0 while it does not."""
        listening = self.server or self.datagrams
        return listening.port if listening is not None else 0

    def poll(self, most_bytes: int) -> list[RecordChunk]:
        """Messages that have come."""
        if self.server is not None:
            self._poll_streams(self.server, most_bytes)
        else:
            if self.datagrams is None and self._retry.due():
                self._open()
            if self.datagrams is not None:
                self._add(self.datagrams.take(most_bytes))
                self._count(self.datagrams)
        return self._joiner.take()

    def wait(self, timeout_s: float) -> None:
        """Until a message may be there, or the time is over."""
        if self.server is not None:
            self.server.wait(timeout_s)
        elif self.datagrams is not None:
            self.datagrams.wait(timeout_s)
        else:
            time.sleep(min(timeout_s, self._retry.left_s))

    def report(self) -> InputReport:
        """Connections as `files`, what is wrong, and the datagrams that wait."""
        if self.server is not None:
            return InputReport(files=self.server.connections, message="; ".join(filter(None, (self.server.message, self._message))))
        waiting = self.datagrams.backlog_bytes if self.datagrams is not None else None
        return InputReport(files=int(self.datagrams is not None), message=self._message, backlog_bytes=waiting)

    def close(self) -> None:
        """Close the port and the connections."""
        if self.server is not None:
            self.server.close()
        if self.datagrams is not None:
            self.datagrams.close()

    def _open(self) -> None:
        try:
            self.datagrams = DatagramReader(self.place)
        except OSError as error:
            self._message = why_not_bound(self.place, error)
            if self._retry.failed() == 1.0:
                LOG.warning("%s", self._message)
            return
        LOG.info("%s: listens on port %d", self.place, self.datagrams.port)
        self._message = ""
        self._retry.worked()

    def _poll_streams(self, server: StreamServer, most_bytes: int) -> None:
        for connection, data in server.read(most_bytes):
            framing = connection.decoder
            if framing is None:
                connection.decoder = framing = SyslogFraming(self._framing, self._lane.max_record)
            messages = framing.feed(data) if data else framing.end()
            if framing.unknown and data:
                messages += framing.end()
                server.drop(connection, "its messages have no count, which `framing: octet` demands; to fix, set `framing: auto`")
            if messages:
                self._add([(message, connection.sender) for message in messages])

    def _add(self, messages: Sequence[tuple[bytes, str]]) -> None:
        most = self._lane.max_record
        if not messages:
            return
        if self._parse:
            now, zone = datetime.now(UTC), self._zone
            records: list[bytes] = []
            for raw, sender in messages:
                if len(raw) > most:
                    self._joiner.add_records(self._origin, records)
                    self._joiner.add(self._origin, too_long(raw, self._lane))
                    records = []
                else:
                    records.append(_encode(parse_syslog(raw, sender, now=now, zone=zone)))
            self._joiner.add_records(self._origin, records)
            return
        by_sender: dict[str, list[bytes]] = {}
        for raw, sender in messages:
            if len(raw) > most:
                self._joiner.add(origin_of(self._lane, sender), too_long(raw, self._lane))
            else:
                by_sender.setdefault(sender, []).append(raw.rstrip(b"\n\r\0"))
        for sender, raws in by_sender.items():
            self._joiner.add_records(origin_of(self._lane, sender), raws)

    def _count(self, datagrams: DatagramReader) -> None:
        """Once a second: datagrams that were dropped become lost records and a message."""
        if time.monotonic() - self._counted < 1:
            return
        self._counted = time.monotonic()
        here, kernel = datagrams.refused, datagrams.dropped_by_kernel()
        if here + kernel <= self._lost:
            return
        lost, self._lost = here + kernel - self._lost, here + kernel
        reason = f"{lost:,} datagrams were dropped, as they came faster than the agent took them"
        self._joiner.add(self._origin, RecordBlock(reason.encode(), lost, "lost"))
        self._message = (
            f"{self._lost:,} datagrams were dropped since the start ({kernel:,} by the kernel, whose buffer has "
            f"{datagrams.kernel_bytes // 1024:,} KiB); to fix, send over TCP, or raise net.core.rmem_max to {KERNEL_BYTES}"
        )
        LOG.warning("%s: %s", self.place, reason)


def _zone_of(where: str, name: str) -> tzinfo | None:
    try:
        return ZoneInfo(name) if name else None
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise EnvironmentFault(f"{where}: zone: {name!r} is not a valid time zone", remedy="name one such as Europe/Berlin") from error


def open(lane: LaneConfig, positions: Mapping[str, FrameOrigin], folder: Path) -> SyslogInput:  # noqa: ARG001
    """The input of a lane; its arguments and errors are those of `scribengin.agent.inputs.open_input`."""
    return SyslogInput(lane)
