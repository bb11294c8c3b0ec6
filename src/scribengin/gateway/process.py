"""The process of a gateway: settings, a start, and an orderly end."""

from __future__ import annotations

import os
import re
import signal
import socket
import sys
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import structlog

from scribengin.core.errors import EnvironmentFault, Exit, Refused
from scribengin.gateway.directory import FileDirectory, lanes_of_flow
from scribengin.gateway.server import GatewayApp
from scribengin.gateway.serving import GatewayListen, GatewayServer
from scribengin.wire.protocol import GatewayMember

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from scribengin.connectors.agents.contract import ChannelWriter
    from scribengin.gateway.directory import AgentDirectory
    from scribengin.plan.agent_lanes import AgentLane

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySettings:
    """What a gateway without a registry is started with.

    Attributes:
        flows: The flow files.
        folder: Where it keeps its state.
        name: Its name, unique among the gateways of a group.
        listen: Its address.
        tokens: The file of tokens; None: no token is required.
        members: The gateways of the group as agents reach them, with their costs; empty: this one.
        group: The name of the group of gateways; empty: it serves all lanes.
        state: The state folder of the flows; None: beside each flow file.
    """

    flows: tuple[Path, ...]
    folder: Path
    name: str = field(default_factory=socket.gethostname)
    listen: GatewayListen = field(default_factory=GatewayListen)
    tokens: Path | None = None
    members: tuple[GatewayMember, ...] = ()
    group: str = ""
    state: Path | None = None


def serve(settings: GatewaySettings) -> int:
    """Run a gateway of flow files until SIGTERM or SIGINT. Returns the exit status. Raises ScribenginError if it cannot start."""
    settings.listen.check(tokens=settings.tokens is not None)

    def read_lanes(path: Path) -> Mapping[str, AgentLane]:
        return lanes_of_flow(path, settings.state)

    directory = FileDirectory(
        settings.flows,
        settings.folder,
        tokens=settings.tokens,
        members=settings.members,
        gateways=settings.group,
        read_lanes=read_lanes,
    )

    def started(url: str) -> None:
        if not settings.members:
            directory.use_members([GatewayMember(url)])

    try:
        return run_gateway(directory, settings.listen, name=settings.name, started=started)
    finally:
        directory.close()


def run_gateway(directory: AgentDirectory, listen: GatewayListen, *, name: str, started: Callable[[str], None] = lambda _: None) -> int:
    """Run a gateway until SIGTERM or SIGINT: then it accepts nothing more, answers what is under way, and ends.

    Args:
        directory: What it knows of agents.
        listen: Its address, checked before.
        name: Its name.
        started: Called with its URL once it answers.

    Returns:
        The exit status.

    Raises:
        EnvironmentFault: The address is taken or not one of this machine.
    """

    def open_writer(_lane: str, lane: AgentLane) -> ChannelWriter:
        from scribengin.connectors.agents.channel import open_channel

        return open_channel(lane.channel, name=name, readers=lane.readers)

    asked = threading.Event()
    before = {number: signal.signal(number, lambda *_: asked.set()) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        with GatewayServer(GatewayApp(directory, open_writer, name=name), listen) as server:
            log_to_stderr()
            started(server.url)
            _log.info("the gateway answers", url=server.url, lanes=sorted(directory.lanes()), process=os.getpid())
            while not asked.wait(0.5) and server.is_alive:
                pass
            if not asked.is_set():
                _log.error("the server ended")
                return Exit.FAILED
            _log.info("the gateway stops")
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return Exit.DONE


def log_to_stderr() -> None:
    """Write the log of this process to stderr."""
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.KeyValueRenderer(key_order=["timestamp", "level", "event"]),
        ],
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )


def address_of(text: str) -> tuple[str, int]:
    """Host and port of a text HOST:PORT. Raises EnvironmentFault if it is not valid."""
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not re.fullmatch(r"\d{1,5}", port) or int(port) > 65_535:
        raise EnvironmentFault(f'"{text}" is not a valid address', remedy="pass --listen HOST:PORT")
    return host, int(port)


def member_of(text: str) -> GatewayMember:
    """A gateway of the text URL[=COST]. Raises Refused if the cost is not a number."""
    url, equals, cost = text.rpartition("=")
    try:
        return GatewayMember(url.rstrip("/"), float(cost)) if equals else GatewayMember(text.rstrip("/"))
    except ValueError as error:
        raise Refused(f'"{text}" is not a valid member', remedy="pass --member URL=COST, with a number as cost") from error
