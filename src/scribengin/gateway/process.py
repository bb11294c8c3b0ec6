"""The process of a gateway: settings, a start, and an orderly end."""

from __future__ import annotations

import argparse
import os
import re
import signal
import socket
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from scribengin.core.errors import EnvironmentFault, Exit, Refused, ScribenginError, text_of
from scribengin.gateway.directory import FileDirectory, lanes_of_flow
from scribengin.gateway.server import GatewayApp
from scribengin.gateway.serving import GatewayListen, GatewayServer
from scribengin.wire.protocol import GatewayMember

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

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


def settings_of(argv: Sequence[str] | None) -> GatewaySettings:
    """The settings of a command line. Raises ScribenginError; ends the process if the command line is not valid."""
    parser = argparse.ArgumentParser(prog="scribengin gateway run", description="Take records from agents and other clients.")
    parser.add_argument("--flow", type=Path, action="append", required=True, metavar="FILE", help="a flow file; may be repeated")
    parser.add_argument("--folder", type=Path, default=Path(".scribengin/gateway"), help="the folder of the gateway's own state")
    parser.add_argument("--state", type=Path, help="the state folder of the flows; default: beside each flow file")
    parser.add_argument("--name", default=socket.gethostname(), help="its name, unique among the gateways of a group; default: the host")
    parser.add_argument("--listen", default="127.0.0.1:7443", metavar="HOST:PORT", help="the address; port 0: a free one")
    parser.add_argument("--tls-certificate", type=Path, metavar="FILE", help="a PEM file with the certificate")
    parser.add_argument("--tls-key", type=Path, metavar="FILE", help="a PEM file with its key")
    parser.add_argument("--client-ca", type=Path, metavar="FILE", help="accept client certificates of these authorities, a PEM file")
    parser.add_argument("--tokens", type=Path, metavar="FILE", help="a file with lines NAME: TOKEN")
    parser.add_argument("--group", default="", help="the name of its group of gateways; default: it serves all lanes")
    parser.add_argument(
        "--member",
        action="append",
        default=[],
        metavar="URL[=COST]",
        help="a gateway of the group, this one too, as agents reach it; may be repeated; default: this one",
    )
    parser.add_argument("--insecure", action="store_true", help="allow other hosts to connect without TLS or without tokens")
    given = parser.parse_args(argv)
    host, port = address_of(given.listen)
    return GatewaySettings(
        flows=tuple(given.flow),
        folder=given.folder,
        state=given.state,
        name=given.name,
        listen=GatewayListen(host, port, given.tls_certificate, given.tls_key, given.client_ca, given.insecure),
        tokens=given.tokens,
        members=tuple(_member(each) for each in given.member),
        group=given.group,
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run a gateway of flow files. Returns the exit status."""
    _log_to_stderr()
    try:
        return serve(settings_of(argv))
    except ScribenginError as error:
        print(f"error: {text_of(error)}", file=sys.stderr)
        if error.remedy:
            print(f"  remedy: {error.remedy}", file=sys.stderr)
        return error.exit


def _log_to_stderr() -> None:
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


def _member(text: str) -> GatewayMember:
    url, equals, cost = text.rpartition("=")
    try:
        return GatewayMember(url.rstrip("/"), float(cost)) if equals else GatewayMember(text.rstrip("/"))
    except ValueError as error:
        raise Refused(f'"{text}" is not a valid member', remedy="pass --member URL=COST, with a number as cost") from error


if __name__ == "__main__":
    sys.exit(main())
