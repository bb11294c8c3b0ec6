"""The login for an object store: from the flow, the environment, or the AWS credentials files."""

from __future__ import annotations

import os
from configparser import ConfigParser, Error
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from scribengin.core.errors import EnvironmentFault, SinkError
from scribengin.core.secret import Secret

if TYPE_CHECKING:
    from collections.abc import Mapping

FROM_FLOW = ("access_key_id", "secret_access_key", "session_token")
"""The keys that `config` may have; their values are stored as secrets."""
_FILE = "AWS_SHARED_CREDENTIALS_FILE"


class Login(NamedTuple):
    """An access key. Never shown: printing it prints stars."""

    key: str
    secret: str
    token: str | None = None

    def __repr__(self) -> str:
        return "Login(***)"


def find_login(node: str, config: Mapping[str, str | Secret], profile: str | None) -> Login | None:
    """The flow's access key, else that of its profile, else that of the environment, else that of the profile `default`; None if there is
    none: then the machine may have a role. Raises SinkError for an incomplete one, EnvironmentFault for a profile that does not exist."""
    given = {name: value.reveal() if isinstance(value, Secret) else value for name, value in config.items()}
    if given:
        lacks = [name for name in FROM_FLOW[:2] if not given.get(name)]
        if lacks:
            raise SinkError(f'"{node}": config has no {lacks[0]}', remedy="set both, or neither", code="objects-login", node=node)
        return Login(given["access_key_id"], given["secret_access_key"], given.get("session_token"))
    key, secret = os.environ.get("AWS_ACCESS_KEY_ID"), os.environ.get("AWS_SECRET_ACCESS_KEY")
    if profile is None and key and secret:
        return Login(key, secret, os.environ.get("AWS_SESSION_TOKEN"))
    path = Path(os.environ.get(_FILE) or "~/.aws/credentials").expanduser()
    name = profile or os.environ.get("AWS_PROFILE") or "default"
    parser = ConfigParser(interpolation=None)
    try:
        parser.read_string(path.read_text())
        section = parser[name]
        return Login(section["aws_access_key_id"], section["aws_secret_access_key"], section.get("aws_session_token"))
    except (OSError, Error, KeyError) as error:
        if profile is None and _FILE not in os.environ:
            return None
        # the text of a parser error may quote the file
        raise EnvironmentFault(
            f'"{node}": no access key of the profile "{name}" in {path} ({type(error).__name__})',
            remedy=f"write [{name}] with aws_access_key_id and aws_secret_access_key there, or name another profile",
            code="objects-login",
            node=node,
        ) from None


def as_config(login: Login) -> dict[str, Secret]:
    """In the form of `config`."""
    return {name: Secret(value, "") for name, value in zip(FROM_FLOW, login, strict=True) if value is not None}
