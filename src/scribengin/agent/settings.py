"""The settings of an agent: flags, then a file in TOML, then the environment, then defaults.

    name = "web-17"
    group = "web"
    gateways = ["https://gateway-1:7443", "https://gateway-2:7443"]
    token_file = "/etc/scribengin-agent/token"
    ca = "/etc/scribengin-agent/ca.pem"
    [tags]
    site = "${env:SITE}"
    host = "${host}"
    app = "${path:3}"

Flows come from a gateway; a setting is what a host must know before it can ask one.
"""

from __future__ import annotations

import os
import re
import socket
import ssl
import tomllib
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from scribengin.core.errors import EnvironmentFault, Refused
from scribengin.core.net import is_loopback

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Mapping

TOKEN_VARIABLE = "SCRIBENGIN_AGENT_TOKEN"
SYSTEM_FOLDER = Path("/var/lib/scribengin-agent")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")
_VALUE = re.compile(r"\$\{([a-z]+)(?::([^}]*))?\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSettings:
    """What one agent is, and how it reaches its gateways."""

    name: str
    gateways: tuple[str, ...]
    data: Path
    """the folder of this agent; nothing else writes there"""
    group: str = ""
    token_file: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    ca: Path | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    """`${path}` and `${path:N}` are still in them: they belong to each file"""
    insecure: bool = False
    log: str = "plain"
    level: str = "info"
    timeout_s: float = 30.0
    """for an answer of a gateway"""
    stop_s: float = 5.0
    """the longest time to hand records over after SIGTERM"""

    def token(self) -> str:
        """The token as it is now, so that a new one in the file needs no restart; empty if there is none.

        Raises:
            EnvironmentFault: The file cannot be read.
        """
        if self.token_file is None:
            return os.environ.get(TOKEN_VARIABLE, "").strip()
        try:
            return self.token_file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            fault = error.strerror if isinstance(error, OSError) else "it is not text"
            raise EnvironmentFault(
                f"the token file {self.token_file} cannot be read: {fault}",
                remedy="make it readable for the user of the agent, and for no other",
            ) from error

    def tls(self) -> ssl.SSLContext:
        """What secures connections: the certificates that are trusted, and the client certificate if there is one.

        Raises:
            EnvironmentFault: A file is missing, or is not a certificate or key.
        """
        try:
            context = ssl.create_default_context(cafile=str(self.ca) if self.ca else None)
        except OSError as error:
            raise EnvironmentFault(
                f"the CA file {self.ca} cannot be used: {error.strerror or error}", remedy="name a PEM file of certificates with --ca"
            ) from error
        if self.certificate is not None:
            try:
                context.load_cert_chain(self.certificate, self.key, password=_no_password)
            except (OSError, ValueError) as error:
                raise EnvironmentFault(
                    f"the client certificate {self.certificate} cannot be used: {getattr(error, 'strerror', None) or error}",
                    remedy="give --certificate and --key as PEM files that belong together, the key without a password",
                ) from error
        return context


def _no_password() -> str:
    """Without it OpenSSL asks on the terminal, and the agent would wait there."""
    raise ValueError("the key has a password")


def add_flags(parser: ArgumentParser) -> None:
    """Add the flags of an agent to a parser. There is none for the token: others on the host can read command lines."""
    parser.add_argument("--settings", type=Path, metavar="FILE", help="TOML file with these settings; flags override it")
    parser.add_argument("--name", help="name of this agent, unique among all agents (default: the host name)")
    parser.add_argument("--group", help="group that flows name under `agents:`")
    parser.add_argument("--gateway", action="append", dest="gateways", metavar="URL", help="address of a gateway; repeat for more")
    parser.add_argument("--data", type=Path, metavar="DIR", help=f"folder of the agent (default: {SYSTEM_FOLDER} or ~/.scribengin-agent)")
    parser.add_argument("--token-file", type=Path, metavar="FILE", help=f"file with the token (default: the variable {TOKEN_VARIABLE})")
    parser.add_argument("--certificate", type=Path, metavar="FILE", help="client certificate, PEM")
    parser.add_argument("--key", type=Path, metavar="FILE", help="private key of the client certificate, PEM")
    parser.add_argument("--ca", type=Path, metavar="FILE", help="certificates to trust for gateways, PEM (default: those of the system)")
    parser.add_argument("--tag", action="append", dest="tags", metavar="NAME=VALUE", help="tag for all records; repeat for more")
    parser.add_argument("--insecure", action="store_true", default=None, help="allow http:// to gateways on other hosts")
    parser.add_argument("--log", choices=("plain", "json"), help="format of log lines on stderr (default: plain)")
    parser.add_argument("--level", choices=("debug", "info", "warning", "error"), help="lowest level that is logged (default: info)")
    parser.add_argument("--timeout", type=float, dest="timeout_s", metavar="SECONDS", help="wait for an answer of a gateway (default: 30)")
    parser.add_argument("--stop-timeout", type=float, dest="stop_s", metavar="SECONDS", help="hand over after SIGTERM (default: 5)")


def read_settings(flags: Namespace) -> AgentSettings:
    """The settings of flags, file and defaults.

    Raises:
        Refused: A value is missing, unknown, of another type, or an address that is not secure.
        EnvironmentFault: The file cannot be read.
    """
    values = _of_file(flags.settings) if flags.settings else {}
    for name in _TYPES:
        if (value := getattr(flags, name, None)) is not None:
            values[name] = value
    if isinstance(tags := values.get("tags"), list):
        values["tags"] = dict(_tag(text) for text in tags)
    values["tags"] = {name: _resolved(name, text) for name, text in values.get("tags", {}).items()}
    values.setdefault("name", socket.gethostname())
    if not _NAME.fullmatch(values["name"]):
        raise Refused(
            f"the name {values['name']!r} of the agent is not valid: expected ASCII letters, digits, `.`, `_` and `-`, at most 128",
            remedy="give a name with --name",
        )
    if not values.get("gateways"):
        raise Refused("no gateway is given", remedy="name one with --gateway https://HOST:PORT, or `gateways` in the settings file")
    insecure = bool(values.get("insecure"))
    values["gateways"] = tuple(checked_gateway(url, insecure=insecure) for url in values["gateways"])
    values["data"] = values.get("data") or default_folder()
    settings = AgentSettings(**values)
    settings.token()
    return settings


def checked_gateway(url: str, *, insecure: bool) -> str:
    """An address of a gateway, without a slash at its end.

    Raises:
        Refused: It is not an address, or not a secure one.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if host is None or parts.scheme not in ("http", "https") or parts.query or parts.fragment or parts.username or port == 0:
        raise Refused(f"{url!r} is not a valid address of a gateway", remedy="give https://HOST:PORT")
    if parts.scheme == "http" and not insecure and not is_loopback(host):
        raise Refused(
            f"{url} is not encrypted: the token and all records could be read on the way",
            remedy="use https://, or allow it in a network that you trust with --insecure",
        )
    return url.rstrip("/")


def default_folder() -> Path:
    """The folder of an agent that names none: the system's if it is writable, else one in the home of its user."""
    nearest = SYSTEM_FOLDER if SYSTEM_FOLDER.exists() else SYSTEM_FOLDER.parent
    return SYSTEM_FOLDER if os.access(nearest, os.W_OK | os.X_OK) else Path.home() / ".scribengin-agent"


_TYPES: dict[str, tuple[type, ...]] = {
    "name": (str,),
    "group": (str,),
    "gateways": (list,),
    "data": (str, Path),
    "token_file": (str, Path),
    "certificate": (str, Path),
    "key": (str, Path),
    "ca": (str, Path),
    "tags": (dict, list),
    "insecure": (bool,),
    "log": (str,),
    "level": (str,),
    "timeout_s": (int, float),
    "stop_s": (int, float),
}
assert set(_TYPES) == {each.name for each in fields(AgentSettings)}


def _of_file(path: Path) -> dict[str, Any]:
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise EnvironmentFault(f"the settings file {path} cannot be read: {error.strerror}", remedy="check its path and rights") from error
    except ValueError as error:
        raise Refused(f"{path} is not valid TOML: {error}") from error
    if "token" in values:
        raise Refused(f"{path}: a token does not belong in the settings", remedy=f"use `token_file`, or the variable {TOKEN_VARIABLE}")
    for name, value in values.items():
        if name not in _TYPES:
            raise Refused(f"{path}: unknown setting {name!r}; there are {', '.join(_TYPES)}")
        if not isinstance(value, _TYPES[name]) or (isinstance(value, bool) and bool not in _TYPES[name]):
            raise Refused(f"{path}: {name} is {value!r}; expected {' or '.join(each.__name__ for each in _TYPES[name])}")
        if Path in _TYPES[name]:
            values[name] = path.parent / Path(str(value)).expanduser()
    for name, value in values.get("tags", {}).items():
        if not isinstance(value, str):
            raise Refused(f"{path}: the tag {name} is {value!r}; expected a text")
    return values


def _tag(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise Refused(f"--tag {text}: expected NAME=VALUE")
    return name, value


def _resolved(name: str, text: str) -> str:
    def value(match: re.Match[str]) -> str:
        kind, argument = match[1], match[2]
        if kind == "host":
            return socket.gethostname()
        if kind == "env" and argument:
            if argument not in os.environ:
                raise Refused(f"the tag {name} is {text!r}, but the variable {argument} is not set", remedy="set it, or remove the tag")
            return os.environ[argument]
        if kind == "path" and (argument is None or re.fullmatch(r"-?\d{1,3}", argument)):
            return match[0]
        raise Refused(f"the tag {name}: {match[0]} is not valid; there are ${{host}}, ${{env:NAME}}, ${{path}} and ${{path:N}}")

    return _VALUE.sub(value, text)


def tags_of(tags: Mapping[str, str], file: str) -> dict[str, str]:
    """The tags of records of one file: `${path}` becomes its path, `${path:N}` the N-th part of it, from the end if N is negative.

    >>> tags_of({"app": "${path:3}", "site": "a"}, "/var/log/shop/access.log")
    {'app': 'shop', 'site': 'a'}
    """

    def value(match: re.Match[str]) -> str:
        if match[1] != "path":
            return match[0]
        if match[2] is None:
            return file
        parts, place = [part for part in file.split("/") if part], int(match[2])
        place = place - 1 if place > 0 else place
        return parts[place] if -len(parts) <= place < len(parts) else ""

    return {name: _VALUE.sub(value, text) for name, text in tags.items()}
