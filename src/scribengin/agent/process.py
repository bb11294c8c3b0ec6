"""The process of an agent: asks gateways for its configuration, runs the lanes of it, and reports on them.

Its folder has `agent.lock`, `config.json` (the last valid configuration: with it the agent reads on while no gateway answers),
`status.json` for people, and a folder for each lane in `lanes/`.
"""

from __future__ import annotations

import fcntl
import logging
import os
import re
import signal
import socket
import sys
import time
from argparse import ArgumentParser
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING
from urllib.parse import urlencode

import msgspec

from scribengin.agent.connection import GatewayConnection, GatewayFault, GatewayReply
from scribengin.agent.gateways import GatewayChain
from scribengin.agent.lane import RunningLane
from scribengin.agent.log import AgentLog, InputLogHandler
from scribengin.agent.sender import SenderSurroundings
from scribengin.agent.settings import AgentSettings, add_flags, checked_gateway, default_folder, read_settings
from scribengin.agent.status import AgentStatus, read_status, status_lines, status_object
from scribengin.core.errors import Exit, Refused, ScribenginError
from scribengin.core.storage import explained, make_folder, read_or_none, replace
from scribengin.wire.protocol import AGENT_HEADER, PREFIX, AgentConfig, AgentReport, GatewayMember, LaneConfig, ReportAnswer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import FrameType

_TICK_S = 0.25
_BUSY_REPORT_S = 1.0
_STATUS_S = 1.0
_STATUS_AGE_MS = 10_000
_CONFIG_S = 60.0
_FIRST_CONFIG_S = 3.0
_TALK_ENDS_S = 10.0
_MOST_CONFIG_BYTES = 8 * 2**20
_MOST_FRAME_BYTES = 4 * 2**20
_SEED_COST = 1e6
_LANE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*(\.[A-Za-z0-9_][A-Za-z0-9_-]*)+")
_PATTERNS = ("path", "exclude")
"""the options of inputs that are patterns of files"""
_ASK_FOR_RIGHTS = "issue a token with `scribengin token add`, and put it into the token file"


class EdgeAgent:
    """One agent. `run` returns after `stop` was called, by a signal handler or another thread."""

    def __init__(self, settings: AgentSettings, log: AgentLog) -> None:
        self.settings = settings
        self.lanes: dict[str, RunningLane] = {}
        self.leaving: dict[str, RunningLane] = {}
        """lanes that are not in the configuration any more, and still have records"""
        self._log = log
        self._stop = Event()
        self._config = AgentConfig()
        self._config_at = -_CONFIG_S
        self._reported_at = 0.0
        self._status_at = 0.0
        self._saved: AgentReport | None = None
        self._saved_ms = 0
        self._changed = False
        self._message = ""
        self._since_ms = time.time_ns() // 1_000_000
        self._release = _release()
        self._connection = GatewayConnection(settings, timeout_s=_FIRST_CONFIG_S)
        """at the start it waits less: there may be a saved configuration to begin with"""
        self._chain = GatewayChain(self._reachable([]), clock=time.monotonic)
        self._surroundings = SenderSurroundings(settings, log, self._lane_unknown)
        self._lane_folder = settings.data / "lanes"

    def stop(self) -> None:
        """Read no more, hand over, and end."""
        self._stop.set()
        self._connection.close()

    def run(self) -> None:
        """Work until `stop`.

        Raises:
            Refused: Another agent uses the folder.
            EnvironmentFault: The folder cannot be written.
        """
        data = self.settings.data
        make_folder(data)
        with explained(f"the folder {data} cannot be used"):
            data.chmod(0o700)
            lock = os.open(data / "agent.lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            _lock(lock, data)
            talk = Thread(target=self._talk, name="talk", daemon=True)
            talk.start()
            while not self._stop.wait(1.0):
                for lane in (*self.lanes.values(), *self.leaving.values()):
                    lane.cut_late_requests()
                self._connection.cut_if_late()
                if self._is_done():
                    self._log.info("all inputs have ended, and all that they read is acknowledged")
                    self._stop.set()
            talk.join(_TALK_ENDS_S)
            self._connection.disconnect()
            self._end()
        finally:
            os.close(lock)

    def _is_done(self) -> bool:
        """True if all inputs have ended for good, as a standard input does, and nothing waits to be acknowledged."""
        lanes = [*self.lanes.values()]
        return bool(lanes) and not self.leaving and all(lane.has_ended and lane.finished() for lane in lanes)

    # ------------------------------------------------------------------ the course of the process

    def _talk(self) -> None:
        """What the thread does that talks to gateways about anything but records."""
        self._log.info(f"agent {self.settings.name} starts", release=self._release, data=self.settings.data)
        if not self._fetch():
            self._use_saved()
        self._connection.timeout_s = self.settings.timeout_s
        self._start_leaving()
        while not self._stop.is_set():
            try:
                self._turn()
            except Exception as error:  # a fault of the agent: its lanes go on
                self._log.error(f"a report failed: {type(error).__name__}: {error}")
            self._stop.wait(_TICK_S)

    def _use_saved(self) -> None:
        path = self.settings.data / "config.json"
        saved = read_or_none(path)
        if saved is None:
            self._log.warning("no gateway gives a configuration, and none was saved: nothing is read until one does")
            return
        try:
            config = msgspec.json.decode(saved, type=AgentConfig)
        except msgspec.MsgspecError as error:
            self._log.error(f"{path} is damaged ({error}): nothing is read until a gateway gives a configuration")
            return
        self._log.warning("no gateway gives a configuration: the last one is used", revision=config.revision)
        self._apply(config)
        self._config = msgspec.structs.replace(self._config, revision="")

    def _start_leaving(self) -> None:
        """Lanes that an earlier run has left with records, and that are in no configuration now."""
        folders = sorted(self._lane_folder.iterdir()) if self._lane_folder.is_dir() else []
        for folder in folders:
            if folder.name in self.lanes or folder.name in self.leaving or not _LANE.fullmatch(folder.name):
                continue
            with suppress(msgspec.MsgspecError):
                config = msgspec.json.decode(read_or_none(folder / "lane.json") or b"", type=LaneConfig)
                lane = self._lane(folder.name, config)
                self.leaving[folder.name] = lane
                lane.start(reading=False)

    def _turn(self) -> None:
        now = time.monotonic()
        for name, lane in list(self.leaving.items()):
            if lane.finished():
                lane.close()
                del self.leaving[name]
                self._log.info(f"{name}: all its records are committed; the lane ends")
        if now - self._config_at >= _CONFIG_S:
            self._fetch()
        busy = any(lane.unacknowledged() for lane in (*self.lanes.values(), *self.leaving.values()))
        if now - self._status_at >= _STATUS_S:
            self._status_at = now
            self._save_status(self._report_now())
        period = max(0.2, self._config.report_s)
        if self._changed or now - self._reported_at >= (min(_BUSY_REPORT_S, period) if busy else period):
            self._changed = False
            self._reported_at = now
            self._report()

    def _end(self) -> None:
        self._log.info("stops: what was read is made durable and handed over", seconds=self.settings.stop_s)
        lanes = [*self.lanes.values(), *self.leaving.values()]
        for lane in lanes:
            lane.stop_reading()
        deadline = time.monotonic() + self.settings.stop_s
        for lane in lanes:
            lane.drain(deadline_s=deadline)
        self._save_status(self._report_now())
        self._connection = GatewayConnection(self.settings, timeout_s=1.0)
        with suppress(GatewayFault):
            if (url := self._chain.choose()) is not None and time.monotonic() < deadline:
                self._post_report(url, self._report_now())
        for lane in lanes:
            left = lane.report()
            lane.close()
            if left.waiting_bytes:
                fate = "given up" if lane.config.durability == "best_effort" else "kept"
                self._log.info(f"{lane.name}: {left.waiting_bytes:,} bytes are not acknowledged, and {fate}")
        self._connection.disconnect()
        self._log.info("stopped")

    # ------------------------------------------------------------------ the configuration

    def _lane_unknown(self) -> None:
        self._config_at = min(self._config_at, time.monotonic() - _CONFIG_S + 2.0)

    def _ask(self, what: str, call: Callable[[str], GatewayReply]) -> tuple[str, GatewayReply] | None:
        """Ask the gateways in their order until one gives a valid status; None if none does now."""
        while (url := self._chain.choose()) is not None and not self._stop.is_set():
            try:
                reply = call(url)
            except GatewayFault as fault:
                self._failed(url, f"{what} failed: {fault}")
                continue
            if reply.status in (401, 403):
                if self._connection.token_changed():
                    self._chain.busy(url, 0.0)
                    continue
                self._failed(url, f"{what}: the token or certificate is not, or no longer, valid ({reply.status}); {_ASK_FOR_RIGHTS}")
            elif reply.status not in (200, 304):
                self._failed(url, f"{what}: it answered {reply.status}; check that the address leads to a gateway")
            else:
                return url, reply
        return None

    def _failed(self, url: str, text: str) -> None:
        self._chain.failed(url, at_least_s=1.0)
        self._message = f"{url}: {text}"
        self._log.warning(self._message)

    def _works(self, url: str) -> None:
        self._chain.succeeded(url)
        self._message = ""

    def _fetch(self) -> bool:
        """Ask for the configuration, and apply it; False if none was had."""
        self._config_at = time.monotonic()
        query = urlencode({"agent": self.settings.name, "group": self.settings.group})
        headers = {AGENT_HEADER: self.settings.name}
        if self._config.revision:
            headers["If-None-Match"] = self._config.revision

        def get(url: str) -> GatewayReply:
            return self._connection.request(url, "GET", f"{PREFIX}/config?{query}", headers=headers, most=_MOST_CONFIG_BYTES)

        asked = self._ask("the configuration", get)
        if asked is None:
            self._config_at = time.monotonic() - _CONFIG_S + max(1.0, self._chain.wait_s())
            return False
        url, reply = asked
        if reply.status == 304:
            self._works(url)
            return True
        try:
            config = msgspec.json.decode(reply.body, type=AgentConfig)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            self._failed(url, f"its configuration is not valid: {error}. The last valid one stays in use")
            return False
        self._works(url)
        self._apply(config)
        with suppress(ScribenginError):  # a full disk: the old one is kept
            replace(self.settings.data / "config.json", reply.body, private=True)
        return True

    def _reachable(self, members: Sequence[GatewayMember]) -> list[GatewayMember]:
        """The gateways of the configuration that may be used, then those of the settings."""
        usable: list[GatewayMember] = []
        for member in members:
            try:
                usable.append(GatewayMember(checked_gateway(member.url, insecure=self.settings.insecure), member.cost))
            except Refused as refused:
                self._log.warning(f"a gateway of the configuration is not used: {refused.message}; {refused.remedy}")
        known = {member.url for member in usable}
        return usable + [GatewayMember(url, _SEED_COST) for url in self.settings.gateways if url not in known]

    def _members(self, config: AgentConfig) -> list[GatewayMember]:
        """Where records go: only to gateways of the configuration, if it names any that may be used."""
        members = self._reachable(config.gateways)
        return [member for member in members if member.cost != _SEED_COST] or members

    def _apply(self, config: AgentConfig) -> None:
        self._config = config
        self._changed = True
        self._chain.replace(self._reachable(config.gateways))
        members = self._members(config)
        wanted = {name: bounded(lane, self.settings) for name, lane in config.lanes.items() if self._valid(name, lane)}
        if config.message:
            self._log.info(f"the gateway says: {config.message}")
        for name in [name for name in self.lanes if name not in wanted]:
            self._log.info(f"{name}: not in the configuration any more; its records are handed over")
            lane = self.leaving[name] = self.lanes.pop(name)
            lane.stop_reading()
        for name, lane_config in wanted.items():
            present = self.lanes.get(name)
            if present is not None and present.change(lane_config, members):
                continue
            if present is not None or (present := self.leaving.pop(name, None)) is not None:
                present.close()
            self._log.info(f"{name}: {lane_config.input}, {lane_config.durability}", version=lane_config.version)
            self.lanes[name] = lane = self._lane(name, lane_config)
            lane.start()
        for lane in self.leaving.values():
            lane.change(lane.config, members)

    def _lane(self, name: str, config: LaneConfig) -> RunningLane:
        return RunningLane(
            name,
            config,
            gateways=self._members(self._config),
            folder=self._lane_folder / name,
            agent_folder=self.settings.data,
            surroundings=self._surroundings,
        )

    def _valid(self, name: str, lane: LaneConfig) -> bool:
        # a name becomes a folder: one that leads elsewhere is never followed
        if name != f"{lane.flow}.{lane.source}" or not _LANE.fullmatch(name) or len(name) > 200:
            self._log.error(
                f"the configuration has a lane {name!r} of {lane.flow!r} and {lane.source!r}; expected FLOW.SOURCE: it is left out"
            )
            return False
        return True

    # ------------------------------------------------------------------ reports

    def _report_now(self) -> AgentReport:
        return AgentReport(
            agent=self.settings.name,
            host=socket.gethostname(),
            group=self.settings.group,
            release=self._release,
            since_ms=self._since_ms,
            revision=self._config.revision,
            lanes={name: lane.report() for name, lane in (*self.leaving.items(), *self.lanes.items())},
            message=self._message,
        )

    def _report(self) -> None:
        report = self._report_now()
        asked = self._ask("the report", lambda url: self._post_report(url, report))
        if asked is None:
            return
        url, reply = asked
        try:
            answer = msgspec.json.decode(reply.body, type=ReportAnswer)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            self._failed(url, f"its answer to a report is not valid: {error}")
            return
        self._works(url)
        for name, numbers in answer.lanes.items():
            lane = self.lanes.get(name) or self.leaving.get(name)
            if lane is not None:
                lane.learn(numbers)
        if answer.revision and answer.revision != self._config.revision:
            self._fetch()

    def _post_report(self, url: str, report: AgentReport) -> GatewayReply:
        headers = {"Content-Type": "application/json", AGENT_HEADER: self.settings.name}
        return self._connection.request(
            url, "POST", f"{PREFIX}/report", body=msgspec.json.encode(report), headers=headers, most=_MOST_CONFIG_BYTES
        )

    def _save_status(self, report: AgentReport) -> None:
        now_ms = time.time_ns() // 1_000_000
        status = AgentStatus(
            time_ms=now_ms,
            pid=os.getpid(),
            gateways=list(self._chain.urls),
            report=report,
            stopping=self._stop.is_set(),
        )
        path = self.settings.data / "status.json"
        if report == self._saved and now_ms - self._saved_ms < _STATUS_AGE_MS:
            return
        self._saved, self._saved_ms = report, now_ms
        try:
            draft = path.with_name(".status.json")
            draft.write_bytes(msgspec.json.encode(status))
            draft.replace(path)
        except OSError as error:
            self._log.warning(f"{path} cannot be written: {error.strerror}")


def bounded(lane: LaneConfig, settings: AgentSettings) -> LaneConfig:
    """A lane's configuration with the tags of this agent, and with limits within which each frame fits."""
    return msgspec.structs.replace(
        lane,
        tags={**settings.tags, **lane.tags},
        options={name: _named(value, settings.name) if name in _PATTERNS else value for name, value in lane.options.items()},
        frame_bytes=min(max(lane.frame_bytes, 4096), _MOST_FRAME_BYTES),
        frame_rows=max(lane.frame_rows, 1),
        max_record=min(max(lane.max_record, 1), _MOST_FRAME_BYTES),
        linger_s=min(max(lane.linger_s, 0.0), 60.0),
    )


def _named(value: object, agent: str) -> object:
    """Patterns with the names of this agent and host: agents on one host may have folders of their own.

    >>> _named(["/var/log/{agent}/*.log"], "web1")
    ['/var/log/web1/*.log']
    """
    if not isinstance(value, list):
        return value
    return [str(each).replace("{agent}", agent).replace("{host}", socket.gethostname()) for each in value]


def _lock(handle: int, data: Path) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        owner = os.read(handle, 100).decode("ascii", "replace").strip()
        raise Refused(
            f"another agent uses the folder {data}" + (f": process {owner}" if owner else ""),
            remedy="stop that agent, or give this one a folder of its own with --data, and a name of its own with --name",
        ) from error
    os.ftruncate(handle, 0)
    os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)


def _release() -> str:
    try:
        return version("scribengin")
    except PackageNotFoundError:
        return ""


def main(argv: Sequence[str] | None = None) -> int:
    """The command: run an agent, or print the status of one.

    Args:
        argv: The arguments after the name of the command; by default those of the process.

    Returns:
        The exit status.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments[:1] == ["status"]:
        return _status(arguments[1:])
    parser = ArgumentParser(
        "scribengin agent run",
        allow_abbrev=False,  # `--token SECRET` must not pass for --token-file
        description="Read files, commands and sockets of this host as flows say, and send the records to gateways. "
        "`status` instead of options prints the state of the agent of a folder.",
    )
    add_flags(parser)
    flags = parser.parse_args(arguments)
    try:
        settings = read_settings(flags)
        log = AgentLog(form=settings.log, level=settings.level)
        inputs = logging.getLogger("scribengin.agent")
        inputs.setLevel(logging.INFO)
        inputs.addHandler(InputLogHandler(log))
        inputs.propagate = False
        if any(url.startswith("https:") for url in settings.gateways):
            settings.tls()
        agent = EdgeAgent(settings, log)
        _on_signals(agent)
        agent.run()
    except ScribenginError as error:
        print(f"error: {error.message}" + (f"; {error.remedy}" if error.remedy else ""), file=sys.stderr)
        return int(error.exit)
    return int(Exit.DONE)


def _on_signals(agent: EdgeAgent) -> None:
    def stop(number: int, _: FrameType | None) -> None:
        signal.signal(number, signal.SIG_DFL)  # a second one ends it at once
        agent.stop()

    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, stop)


def _status(arguments: list[str]) -> int:
    parser = ArgumentParser("scribengin agent status", description="Print the state of the agent of a folder.")
    parser.add_argument("--data", type=Path, metavar="DIR", help="folder of the agent")
    parser.add_argument("--json", action="store_true", help="print it as JSON")
    flags = parser.parse_args(arguments)
    try:
        data = flags.data or default_folder()
        text = msgspec.json.encode(status_object(data)).decode() if flags.json else "\n".join(status_lines(*read_status(data)))
    except ScribenginError as error:
        print(f"error: {error.message}" + (f"; {error.remedy}" if error.remedy else ""), file=sys.stderr)
        return int(error.exit)
    print(text)
    return int(Exit.DONE)
