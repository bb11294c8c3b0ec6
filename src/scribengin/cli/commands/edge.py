"""`scribengin agent run`, `agent status` and `gateway run`: the processes that bring records from hosts into channels."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path
from typing import Any

import click

from scribengin.cli.answer import AnsweringCommand, CommandAnswer
from scribengin.core.errors import Exit

_FILE = click.Path(path_type=Path, dir_okay=False)
_FOLDER = click.Path(path_type=Path, file_okay=False)


class _HandedOver(click.Command):
    """A command whose words are passed on to another process as they are, after they were checked."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep the words, then parse them."""
        ctx.meta["words"] = list(args)
        return super().parse_args(ctx, args)


@click.command(cls=_HandedOver)
@click.option("--settings", type=_FILE, metavar="FILE", help="TOML file with these settings; options override it.")
@click.option("--name", metavar="NAME", help="Name of this agent, unique among all agents. Default: the host name.")
@click.option("--group", metavar="GROUP", help="Group that flows name under `agents:`.")
@click.option("--gateway", multiple=True, metavar="URL", help="Address of a gateway; repeat for more.")
@click.option("--data", type=_FOLDER, metavar="DIR", help="Folder of the agent.")
@click.option("--token-file", type=_FILE, metavar="FILE", help="File with the token. Default: the variable SCRIBENGIN_AGENT_TOKEN.")
@click.option("--certificate", type=_FILE, metavar="FILE", help="Client certificate (PEM).")
@click.option("--key", type=_FILE, metavar="FILE", help="Key (PEM) of the client certificate.")
@click.option("--ca", type=_FILE, metavar="FILE", help="Certificates to trust for gateways (PEM). Default: those of the system.")
@click.option("--tag", multiple=True, metavar="NAME=VALUE", help="Tag for all records; repeat for more.")
@click.option("--insecure", is_flag=True, help="Allow http:// to gateways on other hosts.")
@click.option("--log", type=click.Choice(["plain", "json"]), help="Format of log lines on stderr.")
@click.option("--level", type=click.Choice(["debug", "info", "warning", "error"]), help="Lowest level that is logged.")
@click.option("--timeout", type=float, metavar="SECONDS", help="Wait for an answer of a gateway. Default: 30.")
@click.option("--stop-timeout", type=float, metavar="SECONDS", help="Hand over after SIGTERM. Default: 5.")
@click.pass_context
def agent_run(ctx: click.Context, /, **_: Any) -> None:
    """Run an agent on this host, until Ctrl-C or SIGTERM.

    It reads files, commands and sockets as flows say under `type: agents`, keeps records in a write-ahead log until they are acknowledged,
    and sends them to gateways. It gets its configuration from the gateways.

    \b
    Example:
      scribengin agent run --gateway https://gateway1:7443 --group web --token-file token
    """
    # the process of an agent is light: it does without what this command line has loaded
    os.execv(sys.executable, [sys.executable, "-m", "scribengin.agent", *ctx.meta["words"]])


@click.command(cls=AnsweringCommand)
@click.option("--data", type=_FOLDER, metavar="DIR", help="Folder of the agent.")
def agent_status(*, data: Path | None) -> CommandAnswer:
    """Show the state of the agent of a folder on this host: its sources, what waits, and what is committed.

    \b
    Example:
      scribengin agent status --data /var/lib/scribengin-agent
    """
    from scribengin.agent.settings import default_folder
    from scribengin.agent.status import read_status, status_lines, status_object

    folder = data or default_folder()

    def show() -> None:
        click.echo("\n".join(status_lines(*read_status(folder))))

    return CommandAnswer(status_object(folder), show=show)


@click.command(cls=AnsweringCommand)
@click.option("--flow", "flows", type=_FILE, multiple=True, required=True, metavar="FILE", help="Flow file to serve; repeat for more.")
@click.option("--name", metavar="NAME", help="Name, unique among the gateways of a group. Default: the name of the machine.")
@click.option("--group", metavar="GROUP", default="", help="Group that flows name under `gateways:`. Default: serve the agents of all.")
@click.option(
    "--listen",
    default="127.0.0.1:7443",
    metavar="HOST:PORT",
    help="Where it listens. Default: port 7443 of the loopback.",
)
@click.option("--member", "members", multiple=True, metavar="URL[=COST]", help="Gateway of the group, this one too; repeat for more.")
@click.option("--folder", type=_FOLDER, default=Path(".scribengin/gateway"), show_default=True, help="Folder of its own state.")
@click.option("--state", type=_FOLDER, metavar="DIR", help="State folder of the flows. Default: beside each flow file.")
@click.option("--tokens", type=_FILE, metavar="FILE", help="File with a line `NAME: TOKEN` for each agent.")
@click.option("--tls-certificate", type=_FILE, metavar="FILE", help="Certificate (PEM) of the gateway; needs --tls-key.")
@click.option("--tls-key", type=_FILE, metavar="FILE", help="Key (PEM) of the certificate.")
@click.option("--client-ca", type=_FILE, metavar="FILE", help="Accept client certificates of these authorities (PEM).")
@click.option("--insecure", is_flag=True, help="Allow other hosts to connect without TLS or without tokens.")
def gateway_run(
    *,
    flows: tuple[Path, ...],
    name: str | None,
    group: str,
    listen: str,
    members: tuple[str, ...],
    folder: Path,
    state: Path | None,
    tokens: Path | None,
    tls_certificate: Path | None,
    tls_key: Path | None,
    client_ca: Path | None,
    insecure: bool,
) -> CommandAnswer:
    """Run a gateway, until Ctrl-C or SIGTERM: it takes records from agents and other clients over HTTPS, and stores them in the channels of
    flows before it answers.

    \b
    Example:
      scribengin gateway run --flow flow.yaml
    """
    from scribengin.gateway.process import GatewaySettings, address_of, member_of, serve
    from scribengin.gateway.serving import GatewayListen

    called = name or socket.gethostname()
    settings = GatewaySettings(
        flows=flows,
        folder=folder,
        name=called,
        listen=GatewayListen(*address_of(listen), tls_certificate, tls_key, client_ca, insecure),
        tokens=tokens,
        members=tuple(member_of(each) for each in members),
        group=group,
        state=state,
    )
    status = serve(settings)
    return CommandAnswer({"name": called, "status": status}, exit=Exit(status))
