"""A lane of an agent: one source of one flow. One thread reads its input, numbers and compresses what it reads and keeps it in a buffer;
another sends it (`agent.sender`)."""

from __future__ import annotations

import time
from functools import lru_cache, partial
from threading import Event, Thread
from typing import TYPE_CHECKING, TypeVar

import msgspec

from scribengin.agent.buffers import LogBuffer, MemoryBuffer, NoRoom, PositionFile, SpillBuffer
from scribengin.agent.gateways import GatewayChain
from scribengin.agent.inputs import open_input
from scribengin.agent.inputs.stdin import StdinInput
from scribengin.agent.joining import ChunkJoiner, JoinedChunk, LaneThrottle
from scribengin.agent.sender import FramesSender
from scribengin.agent.settings import tags_of
from scribengin.core.errors import EnvironmentFault, ScribenginError, text_of
from scribengin.core.storage import make_folder, remove_tree, replace
from scribengin.core.units import parse_duration_s
from scribengin.wal.log import Wal
from scribengin.wire.frames import CODECS, FrameHead, FrameOrigin, encode_frame
from scribengin.wire.protocol import GatewayMember, LaneConfig, LaneReport

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from scribengin.agent.buffers import LaneBuffer
    from scribengin.agent.inputs import RecordChunk, RecordInput
    from scribengin.agent.sender import SenderSurroundings
    from scribengin.wire.frames import FrameCodec
    from scribengin.wire.protocol import FramesAnswer

T = TypeVar("T")
_WAIT_S = 0.25
_UNSYNCED_S = 1.0
"""with a sync policy by size, records of a quiet source are made durable after as long"""
_RESTARTS_S = (1.0, 2.0, 5.0, 15.0, 30.0)
_SEGMENT_BYTES = 16 * 2**20
_CLOSE_S = 10.0
_PROBE_S = 10.0
"""how often an earlier log asks for commits, which no report asks for"""
_LOG = "log"
_SPILL = "spill-"
_LIVE = {"version", "limit_rows", "limit_bytes", "paused"}
"""what changes while a lane runs; anything else opens the lane anew"""


class RunningLane:
    """One lane, from its input to a gateway. It is opened by `start`, on its own thread, and opened again after failures.

    Args:
        name: `FLOW.SOURCE`.
        config: What the gateway says.
        gateways: Where records go.
        folder: Of this lane.
        agent_folder: Of the agent.
        surroundings: Of the agent.
    """

    def __init__(
        self,
        name: str,
        config: LaneConfig,
        *,
        gateways: Sequence[GatewayMember],
        folder: Path,
        agent_folder: Path,
        surroundings: SenderSurroundings,
    ) -> None:
        self.name = name
        self.config = config
        self.message = ""
        self.state = "running"
        self.files = 0
        self.has_ended = False
        """its input has ended for good, as a standard input does, and all that it read is durable"""
        self.sender: FramesSender | None = None
        self.leftovers: list[FramesSender] = []
        """what earlier runs with another durability, or `store_on_failure`, have left in their logs"""
        self._surroundings = surroundings
        self._log = surroundings.log
        self._members = tuple(gateways)
        self._folder = folder
        self._agent_folder = agent_folder
        self._throttle = LaneThrottle(time.monotonic, rows=config.limit_rows, bytes=config.limit_bytes)
        self._stop = Event()
        self._reading = True
        self._hand_over = False
        self._input: RecordInput | None = None
        self._thread: Thread | None = None
        self._unsynced_since: float | None = None
        self._codec: FrameCodec = "none"
        self._tags = lru_cache(maxsize=1024)(lambda file: tags_of(self.config.tags, file))

    # ------------------------------------------------------------------ what others ask

    def start(self, *, reading: bool = True) -> None:
        """Open the lane and begin; without `reading` it only hands over what its logs have."""
        self._reading = reading
        self._thread = Thread(target=self._keep_running, name=f"read {self.name}", daemon=True)
        self._thread.start()

    def change(self, config: LaneConfig, gateways: Sequence[GatewayMember]) -> bool:
        """Use another configuration while the lane runs; False if it has to be opened anew for that."""
        others = {name: getattr(config, name) for name in _LIVE}
        if msgspec.structs.replace(self.config, **others) != config:
            return False
        if config != self.config:
            self._log.info(f"{self.name}: changed to version {config.version}{', paused' if config.paused else ''}")
        self.config = config
        self._throttle.change(rows=config.limit_rows, bytes=config.limit_bytes)
        self._members = tuple(gateways)
        for sender in self._senders():
            sender.chain.replace(self._members)
        return True

    def stop_reading(self) -> None:
        """Read no more; what was read becomes durable and is still sent."""
        self._stop.set()

    def drain(self, *, deadline_s: float) -> None:
        """After `stop_reading`: what was read becomes durable, and is sent until that time of the monotonic clock."""
        if self._thread is not None:
            self._thread.join(max(1.0, deadline_s - time.monotonic()))
        while not self.handed_over() and time.monotonic() < deadline_s:
            time.sleep(0.02)

    def close(self) -> None:
        """End the lane. What is durable stays, to be sent by the next run."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(_CLOSE_S)
        self._close()

    def handed_over(self) -> bool:
        """True if gateways have all that can be sent."""
        return all(sender.handed_over() for sender in self._senders())

    def finished(self) -> bool:
        """True if the lane keeps nothing that is not acknowledged, and reads nothing."""
        return not self._alive() and all(sender.buffer.first >= sender.buffer.next for sender in self._senders())

    def unacknowledged(self) -> bool:
        """True if it waits for commits of what gateways have stored."""
        return self.sender is not None and self.sender.buffer.first < self.sender.buffer.next

    def cut_late_requests(self) -> None:
        """End requests that take longer than any should."""
        for sender in self._senders():
            sender.connection.cut_if_late()

    def learn(self, answer: FramesAnswer) -> None:
        """Take in the numbers of a report's answer."""
        if self.sender is not None:
            self.sender.learn(answer)

    def report(self) -> LaneReport:
        """The state of the lane now."""
        sender = self.sender
        if sender is None:
            return LaneReport(state=self.state, version=self.config.version, message=self.message)
        buffer = sender.buffer
        state = self.state
        if state == "running" and sender.waiting:
            state = "waiting"
        messages = [self.message, sender.message, *(left.message for left in self.leftovers)]
        if (source := self._input) is not None:
            report = source.report()
            self.files = report.files
            messages.append(report.message)
        return LaneReport(
            incarnation=buffer.incarnation,
            state=state,
            read=buffer.next,
            stored=sender.stored,
            committed=buffer.first if isinstance(buffer, LogBuffer) else 0,
            waiting_bytes=buffer.waiting_bytes + sum(left.buffer.waiting_bytes for left in self.leftovers),
            oldest_ms=buffer.oldest_ms,
            dropped=buffer.dropped,
            files=self.files,
            version=self.config.version,
            message="; ".join(dict.fromkeys(message for message in messages if message)),
        )

    # ------------------------------------------------------------------ opening and closing

    def _senders(self) -> list[FramesSender]:
        return [*([self.sender] if self.sender is not None else []), *self.leftovers]

    def _alive(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _keep_running(self) -> None:
        failures = 0
        while True:
            began = time.monotonic()
            try:
                if self.sender is None:
                    self._open()
                self._read()
                return
            except Exception as error:
                failures = 1 if time.monotonic() - began > 60 else failures + 1
                delay = _RESTARTS_S[min(failures, len(_RESTARTS_S)) - 1]
                of_input = isinstance(error, _InputFault)
                self._failed(error.cause if isinstance(error, _InputFault) else error, delay)
            self._close_input()
            if not of_input:
                self._close()
            if self._stop.wait(delay):
                return

    def _failed(self, error: BaseException, delay: float) -> None:
        text = text_of(error) if isinstance(error, ScribenginError) else f"{type(error).__name__}: {error}"
        remedy = getattr(error, "remedy", "")
        self.state, self.message = "failed", text + (f"; {remedy}" if remedy else "")
        self._log.error(f"{self.name}: {self.message}", again_in=f"{delay:g}s")

    def _open(self) -> None:
        make_folder(self._folder)
        replace(self._folder / "lane.json", msgspec.json.encode(self.config))
        buffer = self._open_buffer()
        self._start_sender(buffer)
        self._codec = self._usable_codec()

    def _open_buffer(self) -> LaneBuffer:
        durability, drop = self.config.durability, self.config.on_full == "drop_oldest"
        positions = PositionFile(self._folder / "positions.json")
        for path in sorted(self._folder.iterdir()):
            if path.name.startswith(_SPILL) or (path.name == _LOG and durability != "end_to_end"):
                self._open_leftover(path, positions)
        if durability == "best_effort":
            return MemoryBuffer(positions, most_bytes=min(16 * 2**20, self.config.spill_bytes))
        if durability == "store_on_failure":
            name = f"{_SPILL}{time.time_ns():020}"
            return SpillBuffer(self._open_log(self._folder / name), positions, drop_oldest=drop)
        return LogBuffer(self._open_log(self._folder / _LOG), drop_oldest=drop)

    def _open_log(self, folder: Path) -> Wal:
        most = self.config.spill_bytes
        log = Wal(folder, most_bytes=most, segment_bytes=max(64 * 1024, min(_SEGMENT_BYTES, most // 4)), sync=self.config.sync)
        for fault in log.faults:
            self._log.warning(f"{self.name}: {fault}")
        return log

    def _open_leftover(self, folder: Path, positions: PositionFile) -> None:
        log = self._open_log(folder)
        spilled = folder.name != _LOG
        for origin in log.positions.values():
            known = positions.positions.get(origin.identity)
            if known is None or known.end < origin.end:
                positions.put(origin)
        if log.acknowledged >= log.next:
            log.close()
            if spilled:
                positions.save(time.monotonic(), force=True)
                remove_tree(folder)
            return
        self._log.info(f"{self.name}: {log.next - log.acknowledged:,} records of an earlier run are sent first")
        chain = GatewayChain(self._members, clock=time.monotonic)
        buffer = LogBuffer(log, free_at_stored=spilled)
        sender = FramesSender(self.name, buffer, chain, self._surroundings, probe_s=0.0 if spilled else _PROBE_S)
        self.leftovers.append(sender)
        sender.start()

    def _start_sender(self, buffer: LaneBuffer) -> None:
        self.sender = FramesSender(self.name, buffer, GatewayChain(self._members, clock=time.monotonic), self._surroundings)
        self.sender.start()

    def _usable_codec(self) -> FrameCodec:
        wanted = self.config.compression
        if wanted not in CODECS:
            raise EnvironmentFault(f"this agent has no compression {wanted!r}", remedy="update the agent to the release of the gateway")
        codec: FrameCodec = next(each for each in CODECS if each == wanted)
        try:
            encode_frame(FrameHead("records", codec, 0, 0, 0, 0), b"")
        except ImportError as error:
            self._log.warning(f"{self.name}: {codec} is not installed here ({error.name}): records are compressed with gzip")
            return "gzip"
        return codec

    def _close_input(self) -> None:
        if (source := self._input) is not None:
            self._input = None
            try:
                source.close()
            except Exception as error:
                self._log.warning(f"{self.name}: the input was not closed: {error}")

    def _close(self) -> None:
        self._close_input()
        for sender in self._senders():
            sender.stop()
            try:
                sender.buffer.close()
            except (OSError, NoRoom, ScribenginError) as error:
                self._log.error(f"{self.name}: the log was not closed: {error}")
        self.sender, self.leftovers = None, []

    # ------------------------------------------------------------------ reading

    def _read(self) -> None:
        sender, config = self.sender, self.config
        assert sender is not None
        if not self._reading or self._stop.is_set():
            self.state, self.message = "paused", "not in the configuration any more; its records are kept until they are committed"
            return
        source = self._input = _input_calls(partial(open_input, config, sender.buffer.positions(), self._agent_folder))
        self.state, self.message = "running", ""
        joiner = ChunkJoiner(rows=config.frame_rows, bytes=config.frame_bytes, linger_s=config.linger_s)
        sync_wait_s = _sync_wait_s(config.sync)
        while not self._stop.is_set():
            now = time.monotonic()
            paused, wait = self.config.paused, self._throttle.wait_s()
            chunks: list[RecordChunk] = []
            if not paused and wait <= 0:
                most = self._throttle.most_bytes(config.frame_bytes)
                chunks = _input_calls(partial(source.poll, most))
            ready: list[JoinedChunk] = []
            for chunk in chunks:
                self._throttle.read(chunk.count, len(chunk.payload))
                ready += joiner.add(chunk, now)
            ready += joiner.due(now)
            if not self._keep(ready, sender):
                break  # what follows must not be kept either: the position of its file would pass over what was not
            self._sync(sender)
            self.state = "paused" if paused else "running"
            if not chunks and _is_at_end(source):
                self._keep(joiner.take_all(), sender)
                break
            if not chunks:
                due = joiner.due_in(now)
                unsynced = sender.buffer.sendable < sender.buffer.next
                idle = min(_WAIT_S, _WAIT_S if due is None else due, sync_wait_s if unsynced else _WAIT_S)
                if paused:
                    self._stop.wait(idle)
                elif wait > 0:
                    self._stop.wait(min(idle, wait))
                else:
                    _input_calls(partial(source.wait, idle))
        else:
            self._keep(joiner.take_all(), sender)
        self._sync(sender, force=True)
        if _is_at_end(source) and not self._stop.is_set():
            self.has_ended, self.state = True, "ended"
        self._close_input()

    def _keep(self, ready: list[JoinedChunk], sender: FramesSender) -> bool:
        """Number, compress and keep what is ready. While there is no room, it waits, and so the input is not read.

        Returns:
            False if the lane is to stop, and there was no room for all. What was not kept was not acknowledged to its sender, and is read
            again where that is possible.
        """
        for joined in ready:
            chunk = joined.chunk
            head = FrameHead(
                kind=chunk.kind,
                codec=self._codec,
                sequence=sender.buffer.next,
                count=chunk.count,
                raw_bytes=len(chunk.payload),
                time_ms=chunk.time_ms,
                mark=chunk.mark,
                origin=self._tagged(chunk.origin),
            )
            frame = encode_frame(head, chunk.payload)
            if not self._with_room(partial(sender.buffer.add, frame, head, joined.done)):
                return False
        return True

    def _sync(self, sender: FramesSender, *, force: bool = False) -> None:
        buffer, now = sender.buffer, time.monotonic()
        if buffer.sendable >= buffer.next:
            self._unsynced_since = None
        elif self._unsynced_since is None:
            self._unsynced_since = now
        late = self._unsynced_since is not None and now - self._unsynced_since > _UNSYNCED_S
        self._with_room(partial(buffer.sync, now, force=force or late))
        if buffer.sendable > sender.position:
            sender.wake()

    def _with_room(self, act: Callable[[], None]) -> bool:
        """Do something that may need room, as soon as there is some; False if the lane is to stop, and there is none."""
        while True:
            try:
                act()
            except NoRoom as full:
                self.state, self.message = "full", str(full)
                self._log.warning(f"{self.name}: {full}")
                if self.sender is not None:
                    self.sender.wake()
            else:
                if self.state == "full":
                    self.state, self.message = "running", ""
                return True
            if self._stop.wait(_WAIT_S):
                return False

    def _tagged(self, origin: FrameOrigin) -> FrameOrigin:
        tags: Mapping[str, str] = self._tags(origin.file)
        if all(origin.tags.get(name) == value for name, value in tags.items()):
            return origin
        own = {name: value for name, value in origin.tags.items() if self.config.tags.get(name) != value}
        return msgspec.structs.replace(origin, tags={**tags, **own})


def _is_at_end(source: RecordInput) -> bool:
    """Whether nothing will ever come: a standard input cannot begin again, while a command or a file may."""
    return isinstance(source, StdinInput) and source.finished


class _InputFault(Exception):
    """The input failed, and nothing else: the buffer stays open."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


def _input_calls(call: Callable[[], T]) -> T:
    try:
        return call()
    except Exception as error:
        raise _InputFault(error) from error


def _sync_wait_s(sync: str) -> float:
    """How soon to come back for a sync that is not yet due."""
    try:
        return max(0.005, min(_WAIT_S, parse_duration_s(sync)))
    except ValueError:
        return _WAIT_S
