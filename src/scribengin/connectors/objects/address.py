"""The address of a flow's objects: `s3://bucket/prefix`, `hdfs://namenode:port/folder`, or `file:///folder` to try it without a server; and
how the place is accessed."""

from __future__ import annotations

import os
from configparser import ConfigParser, Error
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote, urlsplit

from scribengin.connectors.addresses import HDFS_URL, S3_URL, store_url_fault, url_check
from scribengin.core.errors import EnvironmentFault, SinkError
from scribengin.core.secret import Secret
from scribengin.core.store import LocalStore

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scribengin.connectors.hdfs.store import HdfsStore
    from scribengin.connectors.objects.s3 import S3Store


# The login for an object store: from the flow, the environment, or the AWS credentials files.


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
    """Find the access key for a store: in the flow's `config`, in its profile, in the environment, or in the profile `default`, in this
    order.

    Args:
        node: The id of the node, for messages.
        config: The flow's access key; empty if there is none.
        profile: The flow's profile of the AWS credentials file; None if there is none.

    Returns:
        The access key; None if there is none: the machine may have a role.

    Raises:
        SinkError: `config` is incomplete.
        EnvironmentFault: The profile does not exist, or has no access key.
    """
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
    """The login in the form of the option `config`."""
    return {name: Secret(value, "") for name, value in zip(FROM_FLOW, login, strict=True) if value is not None}


REGION = "us-east-1"
"""the region for stores that have none"""


ENDPOINT_FAULT = url_check("http", "https", write="write it as https://HOST:PORT, or http:// for one without TLS")
"""a check for `Option.check` of an `endpoint`"""


def below(url: str) -> str:
    """The address in a form for comparison: an address is inside another one if it begins with that one's form."""
    return url.rstrip("/") + "/"


@dataclass(frozen=True, slots=True)
class ObjectsAddress:
    """A `url` and its access settings; sent to executors."""

    node: str
    url: str
    endpoint: str | None
    region: str
    path_style: bool
    ca_file: str | None
    config: Mapping[str, Any]
    profile: str | None
    login: Login | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    """settings of the Hadoop client"""

    @staticmethod
    def of(node: str, options: Mapping[str, Any], folder: Path | None = None) -> ObjectsAddress:
        """Make the address from a node's options.

        Args:
            node: The id of the node, for messages.
            options: The node's options, with defaults.
            folder: The folder that a relative `ca_file` starts at; None: the current one.

        Raises:
            SinkError: `url` or `endpoint` is invalid.
        """
        in_hdfs = "settings" in options
        fault = store_url_fault(options["url"], HDFS_URL if in_hdfs else S3_URL)
        if fault is not None:
            raise SinkError(f'"{node}": url {fault[0]}', remedy=fault[1], code="hdfs-url" if in_hdfs else "objects-url", node=node)
        if in_hdfs:
            return ObjectsAddress(node, options["url"], None, "", True, None, {}, None, settings=options["settings"])
        endpoint = options["endpoint"]
        if endpoint is not None and (endpoint_fault := ENDPOINT_FAULT(endpoint)) is not None:
            raise SinkError(f'"{node}": endpoint {endpoint_fault[0]}', remedy=endpoint_fault[1], code="objects-url", node=node)
        ca_file = options["ca_file"]
        if ca_file is not None:
            ca_file = str(Path(folder or "", ca_file).expanduser())
        names = ("config", "profile")
        reached = (endpoint, options["region"], options["path_style"], ca_file)
        return ObjectsAddress(node, options["url"], *reached, *(options[name] for name in names))

    def __str__(self) -> str:
        return self.url

    @property
    def is_local(self) -> bool:
        """True if the address is a folder of this machine."""
        return self.url.startswith("file:")

    @property
    def is_hdfs(self) -> bool:
        """True if the address is a folder of an HDFS."""
        return self.url.startswith("hdfs:")

    def open(self) -> LocalStore | S3Store | HdfsStore:
        """Open the store, with keys relative to the url. Raises EnvironmentFault or SinkError if there is no client or login."""
        parts = urlsplit(self.url)
        if self.is_local:
            return LocalStore(Path(unquote(parts.path)))
        if self.is_hdfs:
            from scribengin.connectors.hdfs.store import HdfsStore

            return HdfsStore(self, f"hdfs://{parts.netloc}", parts.path.strip("/"), self.settings)
        from scribengin.connectors.objects.s3 import S3Store

        return S3Store(self.with_login(), parts.netloc, parts.path.strip("/"))

    def check_place(self) -> None:
        """List the first objects below the url. Raises the store's errors."""
        next(iter(self.with_login().open().list()), None)

    @property
    def server(self) -> str | None:
        """The address that requests are sent to, with the bucket in the host name if that is configured: clients use it unchanged. None:
        AWS's own address."""
        if self.endpoint is None or self.path_style:
            return self.endpoint
        scheme, _, rest = self.endpoint.partition("://")
        return f"{scheme}://{urlsplit(self.url).netloc}.{rest}"

    def authorities(self) -> str:
        """The text of `ca_file`, which must be set. Raises SinkError if the file contains no certificate, or cannot be read."""
        path = Path(self.ca_file or "")
        try:
            text = path.read_text(errors="replace")
            fault = "" if "-----BEGIN CERTIFICATE-----" in text else "holds no certificate"
        except OSError as error:
            text, fault = "", f"cannot be read: {error.strerror}"
        if fault:
            raise SinkError(
                f'"{self.node}": ca_file {path} {fault}',
                remedy="name a PEM file of the authorities to trust; its lines begin with -----BEGIN CERTIFICATE-----",
                code="objects-trust",
                node=self.node,
            )
        return text

    def with_login(self) -> ObjectsAddress:
        """The address with the login that this process finds, for other processes: a task has another environment. Raises the errors of
        `find_login`."""
        if self.login is not None or self.is_local or self.is_hdfs:
            return self
        return replace(self, login=find_login(self.node, self.config, self.profile))
