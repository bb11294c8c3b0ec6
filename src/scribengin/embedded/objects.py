"""A real object store with the S3 protocol on 127.0.0.1: versitygw over a folder, built once with this machine's Go."""

from __future__ import annotations

import http.client
import secrets
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from scribengin.core.storage import explained, make_folder, put_if_absent
from scribengin.embedded.go_programs import built
from scribengin.embedded.server import HOST, LoneServer, check_port, load_or_create, start_server

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NAME = "versitygw"
PACKAGE, VERSION = "github.com/versity/versitygw/cmd/versitygw", "v1.8.0"
BUCKET = "objects"
"""the bucket that the first start creates"""
_READY_WITHIN_S = 30.0


class _Keys(msgspec.Struct, frozen=True):
    key: str
    secret: str


class ObjectServer(LoneServer):
    """An object store. Its access keys are created once, and stored in a file for this user only, in the format of AWS's tools."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, NAME, files="objects")

    @property
    def uri(self) -> str:
        """The URL for clients."""
        return f"http://{self.address}"

    @property
    def credentials(self) -> Path:
        """The path of a file for AWS_SHARED_CREDENTIALS_FILE; it exists after the first start."""
        return self.folder / "keys" / "credentials"

    def fetch(self, tell: Callable[[str], None]) -> None:
        """Build the server, if the cache lacks it. `tell` is called with a message before."""
        built(PACKAGE, VERSION, tell)

    def start(self) -> None:
        """Start the server if it is not running, and return when it serves. Raises EnvironmentFault: there is no Go, the port is taken, or
        the server does not start."""
        if self._server is not None and self._server.alive():
            return
        program = built(PACKAGE, VERSION)
        check_port(self._port, NAME)
        keys = self._keys()
        data = self.folder / "data"
        make_folder(data / BUCKET)
        command: list[str | Path] = [program, "--quiet", "--port", self.address, "posix", data]
        # the command line would be visible to all users
        environment = {"ROOT_ACCESS_KEY": keys.key, "ROOT_SECRET_KEY": keys.secret}
        self._server = start_server(NAME, command, pid_file=self._pid_file, log=self.log, environment=environment)
        self._server.wait_ready(self.answers, _READY_WITHIN_S)

    def answers(self, *, timeout_s: float = 1.0) -> bool:
        """True if the server answers: it denies an anonymous request."""
        with suppress(OSError, http.client.HTTPException):
            connection = http.client.HTTPConnection(HOST, self._port, timeout=timeout_s)
            connection.request("GET", "/")
            return connection.getresponse().status == http.client.FORBIDDEN
        return False

    def _keys(self) -> _Keys:
        folder = self.credentials.parent
        make_folder(folder)
        with explained(f"the permissions of {folder} cannot be restricted to this user"):
            folder.chmod(0o700)
        keys = load_or_create(folder / "keys.json", _Keys, lambda: _Keys(secrets.token_hex(10), secrets.token_hex(20)))
        shared = f"[default]\naws_access_key_id = {keys.key}\naws_secret_access_key = {keys.secret}\n"
        put_if_absent(self.credentials, shared.encode())
        return keys
