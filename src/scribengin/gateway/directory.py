"""What a gateway knows of agents: their lanes, configuration, tokens and newest reports.

A gateway asks an `AgentDirectory`. `FileDirectory` is the one without a registry: it reads flow files and a file of tokens, again when they
change, and keeps the reports of the agents in a small file.
"""

from __future__ import annotations

import hashlib
import re
import threading
import time
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Protocol

import msgspec
import structlog

from scribengin.core.errors import EnvironmentFault, ScribenginError, text_of
from scribengin.core.storage import make_folder, read_or_none, replace
from scribengin.plan.agent_lanes import lanes_of
from scribengin.wire.chains import chain_of
from scribengin.wire.protocol import AgentConfig, AgentReport

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from scribengin.plan.agent_lanes import AgentLane
    from scribengin.wire.protocol import GatewayMember

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class TokenHolder:
    """Whose token it is. `name` may be a pattern of names, such as `web-*`."""

    name: str
    admin: bool = False


@dataclass(frozen=True, slots=True)
class KeptReport:
    """The newest report of an agent, and when it was received, in seconds since 1970."""

    report: AgentReport
    received_s: float


class AgentDirectory(Protocol):
    """What a gateway asks. `lanes`, `allows` and `holder` are asked for each request and answer from memory; the others may take time, and
    are called from other threads."""

    def config(self, agent: str, group: str) -> AgentConfig:
        """What the agent is to do."""

    def report(self, report: AgentReport) -> None:
        """Keep a report of an agent."""

    def lanes(self) -> Mapping[str, AgentLane]:
        """Lane → what the gateway needs for it."""

    def allows(self, token: str, agent: str) -> bool:
        """True if the token, which may be empty, permits to act as that agent."""

    def holder(self, token: str) -> TokenHolder | None:
        """Whose token it is; None if it is not valid. An empty token has a holder only if no token is required."""

    def agents(self) -> Sequence[KeptReport]:
        """The newest report of each agent."""


# The list of agents, as administrators see it.


class AgentLaneRow(msgspec.Struct, omit_defaults=True):
    """A lane of an agent in the list of agents."""

    state: str
    backlog: int
    """records that were read and are not committed"""
    waiting_bytes: int = 0
    oldest_age_s: float | None = None
    """the age of the oldest record that is not acknowledged"""
    dropped: int = 0
    files: int = 0
    version: int = 0
    message: str = ""


class AgentRow(msgspec.Struct):
    """An agent in the list of agents."""

    agent: str
    group: str
    host: str
    release: str
    report_age_s: float
    revision: str
    lanes: dict[str, AgentLaneRow]
    message: str = ""


def agent_rows(kept: Sequence[KeptReport], now_s: float) -> list[AgentRow]:
    """The list of agents, by name.

    Args:
        kept: Their newest reports.
        now_s: The present time, in seconds since 1970: ages are relative to it.
    """
    rows = []
    for each in kept:
        report = each.report
        lanes = {
            name: AgentLaneRow(
                state=lane.state,
                backlog=max(0, lane.read - lane.committed),
                waiting_bytes=lane.waiting_bytes,
                oldest_age_s=round(max(0.0, now_s - lane.oldest_ms / 1000), 1) if lane.oldest_ms else None,
                dropped=lane.dropped,
                files=lane.files,
                version=lane.version,
                message=lane.message,
            )
            for name, lane in report.lanes.items()
        }
        age_s = round(max(0.0, now_s - each.received_s), 1)
        rows.append(AgentRow(report.agent, report.group, report.host, report.release, age_s, report.revision, lanes, report.message))
    return sorted(rows, key=lambda row: row.agent)


# Tokens.


class AgentTokens:
    """The tokens of a file. Each line is `NAME: TOKEN` or `NAME: sha256:HEX`, followed by `admin` if the token may list all agents. A name
    may be a pattern, such as `web-*`. Lines that begin with `#` are comments.

    >>> tokens = AgentTokens.of_text("web-*: one\\nops: two admin", "tokens")
    >>> tokens.allows("one", "web-7"), tokens.allows("one", "db-1"), tokens.holder("two")
    (True, False, TokenHolder(name='ops', admin=True))
    """

    def __init__(self, holders: Mapping[str, Sequence[TokenHolder]]) -> None:
        self._holders = holders
        """SHA-256 of a token → its holders; no token is compared as text, so that timing shows nothing"""

    @staticmethod
    def of_text(text: str, where: str) -> AgentTokens:
        """The tokens of a text. Raises EnvironmentFault, which names the line."""
        holders: dict[str, list[TokenHolder]] = {}
        for number, line in enumerate(text.splitlines(), 1):
            name, colon, rest = line.partition(":")
            words = rest.split()
            if not line.strip() or line.lstrip().startswith("#"):
                continue
            if not colon or not name.strip() or len(words) not in (1, 2) or words[1:] not in ([], ["admin"]):
                raise EnvironmentFault(
                    f"{where}, line {number}: is not a valid token; expected NAME: TOKEN",
                    remedy="write NAME: TOKEN, or NAME: sha256:HEX, followed by admin for administrators",
                )
            given = words[0]
            if given.startswith("sha256:") and not re.fullmatch(r"sha256:[0-9a-fA-F]{64}", given):
                raise EnvironmentFault(
                    f"{where}, line {number}: is not a valid SHA-256; expected 64 hexadecimal digits",
                    remedy="make it: printf %s TOKEN | sha256sum",
                )
            digest = given[7:].lower() if given.startswith("sha256:") else _digest(given)
            holders.setdefault(digest, []).append(TokenHolder(name.strip(), admin=len(words) == 2))
        return AgentTokens(holders)

    def allows(self, token: str, agent: str) -> bool:
        """True if one of the token's holders has that name."""
        return any(holder.name == agent or fnmatchcase(agent, holder.name) for holder in self._holders.get(_digest(token), ()))

    def holder(self, token: str) -> TokenHolder | None:
        """The first holder of a token."""
        return next(iter(self._holders.get(_digest(token), ())), None)


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


# The directory of files.


def lanes_of_flow(path: Path, state: Path | None = None) -> dict[str, AgentLane]:
    """The lanes of a flow file. Raises InputError.

    Args:
        path: The flow file.
        state: Its state folder, where the channels are that the flow does not place; None: beside the file.
    """
    from scribengin.local.prepare import prepare

    return lanes_of(prepare(path, state=state).plan)


_LOOK_S = 1.0
"""how often files are checked for changes"""
_SAVE_S = 10.0
"""how often the reports are written at most"""
_OPEN = TokenHolder("client", admin=True)
_FileState = tuple[tuple[int, int, int] | None, ...]


class _SavedReports(msgspec.Struct):
    agents: list[tuple[float, AgentReport]] = []


@dataclass(frozen=True, slots=True)
class _Loaded:
    state: _FileState
    lanes: Mapping[str, AgentLane]
    tokens: AgentTokens | None


class FileDirectory:
    """The directory of a gateway without a registry.

    A file that was changed and is not valid leaves the last valid content in force; the log says why.
    """

    def __init__(
        self,
        files: Sequence[Path],
        folder: Path,
        *,
        tokens: Path | None = None,
        members: Sequence[GatewayMember] = (),
        gateways: str = "",
        read_lanes: Callable[[Path], Mapping[str, AgentLane]] = lanes_of_flow,
    ) -> None:
        """Read the files.

        Args:
            files: The flow files.
            folder: Where the reports of agents are kept.
            tokens: The file of tokens; None: no token is required.
            members: The gateways of this group, this one too.
            gateways: The name of this group of gateways: lanes of other groups are not served. Empty: all are served.
            read_lanes: Reads the lanes of a flow file.

        Raises:
            ScribenginError: A file cannot be read or is not valid.
        """
        self._files = tuple(files)
        self._token_file = tokens
        self._members = tuple(members)
        self._gateways = gateways
        self._read_lanes = read_lanes
        self._folder = folder
        self._lock = threading.Lock()
        self._configs: dict[tuple[str, str], AgentConfig] = {}
        self._reports: dict[str, KeptReport] = {}
        self._saved_s = 0.0
        self._looked_s = time.monotonic()
        make_folder(folder)
        self._loaded = self._load(self._file_state())
        self._restore()

    def config(self, agent: str, group: str) -> AgentConfig:
        """See `AgentDirectory`."""
        lanes = self._current().lanes
        with self._lock:
            known = self._configs.get((agent, group))
        if known is not None:
            return known
        own = {name: lane for name, lane in lanes.items() if lane.group == group}
        made = AgentConfig(
            lanes={name: lane.config for name, lane in own.items()},
            gateways=chain_of(agent, self._members),
            message="" if own else _nothing_to_do(group, lanes),
        )
        made = msgspec.structs.replace(made, revision=hashlib.sha256(msgspec.json.encode(made, order="sorted")).hexdigest()[:16])
        with self._lock:
            if lanes is self._loaded.lanes:
                if len(self._configs) > 100_000:
                    self._configs.clear()
                self._configs[agent, group] = made
        return made

    def report(self, report: AgentReport) -> None:
        """See `AgentDirectory`."""
        now_s = time.monotonic()
        with self._lock:
            self._reports[report.agent] = KeptReport(report, time.time())
            due = now_s - self._saved_s > _SAVE_S
            if due:
                self._saved_s = now_s
        if due:
            self._save()

    def lanes(self) -> Mapping[str, AgentLane]:
        """See `AgentDirectory`."""
        return self._current().lanes

    def allows(self, token: str, agent: str) -> bool:
        """See `AgentDirectory`."""
        tokens = self._current().tokens
        return tokens is None or tokens.allows(token, agent)

    def holder(self, token: str) -> TokenHolder | None:
        """See `AgentDirectory`."""
        tokens = self._current().tokens
        return _OPEN if tokens is None else tokens.holder(token)

    def agents(self) -> list[KeptReport]:
        """See `AgentDirectory`."""
        with self._lock:
            return list(self._reports.values())

    def use_members(self, members: Sequence[GatewayMember]) -> None:
        """Change the gateways that agents are given."""
        with self._lock:
            self._members = tuple(members)
            self._configs.clear()

    def close(self) -> None:
        """Write the reports."""
        self._save()

    def _current(self) -> _Loaded:
        now_s = time.monotonic()
        if now_s - self._looked_s < _LOOK_S:
            return self._loaded
        self._looked_s = now_s
        state = self._file_state()
        if state != self._loaded.state:
            try:
                loaded = self._load(state)
            except ScribenginError as error:
                _log.error(f"a changed file is not valid, and its last valid content stays in force: {text_of(error)}")
                loaded = _Loaded(state, self._loaded.lanes, self._loaded.tokens)
            with self._lock:
                self._loaded = loaded
                self._configs.clear()
        return self._loaded

    def _file_state(self) -> _FileState:
        paths = (*self._files, *([] if self._token_file is None else [self._token_file]))
        return tuple(_state_of(path) for path in paths)

    def _load(self, state: _FileState) -> _Loaded:
        lanes: dict[str, AgentLane] = {}
        for path in self._files:
            served = self._read_lanes(path).items()
            lanes.update({name: lane for name, lane in served if not self._gateways or lane.gateways in ("", self._gateways)})
        tokens = None
        if self._token_file is not None:
            try:
                text = self._token_file.read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError) as error:
                raise EnvironmentFault(
                    f"{self._token_file} cannot be read: {error}", remedy="grant access, or pass another file"
                ) from error
            tokens = AgentTokens.of_text(text, str(self._token_file))
        return _Loaded(state, lanes, tokens)

    @property
    def _reports_file(self) -> Path:
        return self._folder / "agents.json"

    def _save(self) -> None:
        with self._lock:
            saved = _SavedReports([(each.received_s, each.report) for each in self._reports.values()])
        try:
            replace(self._reports_file, msgspec.json.encode(saved))
        except (OSError, ScribenginError) as error:
            _log.error(f"the reports of agents are kept in memory only: {text_of(error)}")

    def _restore(self) -> None:
        data = read_or_none(self._reports_file)
        if data is None:
            return
        try:
            saved = msgspec.json.decode(data, type=_SavedReports)
        except msgspec.MsgspecError as error:
            _log.error(f"{self._reports_file} is not valid, and the list of agents starts empty: {error}")
            return
        self._reports = {report.agent: KeptReport(report, received_s) for received_s, report in saved.agents}


def _state_of(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _nothing_to_do(group: str, lanes: Mapping[str, AgentLane]) -> str:
    groups = ", ".join(f'"{each}"' for each in sorted({lane.group for lane in lanes.values()})) or "none"
    return f'no flow here collects from agents of the group "{group}"; groups: {groups}'
