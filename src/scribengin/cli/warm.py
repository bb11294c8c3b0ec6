"""The client of the warm process of a flow's folder: a command asks it to run the command. If there is none or it cannot, the command runs
in its own process.

The process is `warm_server`. This module imports no part of Spark. Rationale: docs/decisions/0057-a-warm-process-forks.md.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import signal
import socket
import stat
import struct
import subprocess
import sys
import sysconfig
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from scribengin.cli.answer import AnsweringCommand
from scribengin.cli.settings import read_settings
from scribengin.core.cache import cache_folder
from scribengin.core.errors import InputError
from scribengin.core.process import Process
from scribengin.core.units import parse_duration_s

if TYPE_CHECKING:
    from collections.abc import Iterator

_CONNECT_S = 0.5
_TAKEN_S = 5.0
"""seconds within which a warm process that is alive accepts or refuses a command"""
_FIRST_TAKEN_S = 30.0
_BUSY_S = 3.0
"""seconds to wait for a previous command that has answered and is resetting Spark; a command that still runs is not waited for"""
_POLL_S = 0.05
_LENGTH = struct.Struct("!I")
_OF_THE_TERMINAL = frozenset(
    {"COLUMNS", "LINES", "TERM", "COLORTERM", "OLDPWD", "PWD", "SHLVL", "_", "WINDOWID", "TERM_SESSION_ID", "NO_COLOR"}
    | {"SCRIBENGIN_WARM", "SCRIBENGIN_WARM_IDLE"}
)
"""variables that differ between terminals and have no effect on the rows of any step. All other variables must be the same as those of the
warm process."""


class WarmCommand(AnsweringCommand):
    """A command that may run in the warm process of its flow's folder. The parameter `warm` is used here; the function does not get it."""

    def invoke(self, ctx: click.Context) -> None:
        """Let the warm process run the command, or run it here."""
        warm = ctx.params.pop("warm", None)
        if not _served and self._is_meant(ctx.params):
            status = _asked(ctx, warm)
            if status is not None:
                ctx.exit(status)
        super().invoke(ctx)

    @staticmethod
    def _is_meant(params: dict[str, Any]) -> bool:
        """True if the command starts Spark and may be run a second time if the warm process dies. `--from-run` may not: it adds a test each
        time."""
        wants_spark = params.get("deep", True) and (params.get("watch", True) or "once" not in params)
        return bool(wants_spark and not params.get("state") if "named" in params else wants_spark)


_served = False


def serve_here() -> None:
    """Mark this process as a child of the warm process, whose commands use no other warm process."""
    global _served
    _served = True


def _asked(ctx: click.Context, warm: bool | None) -> int | None:
    """Returns the exit status if the warm process has run the command, otherwise None."""
    flows = ctx.params.get("flows") or (ctx.params.get("flow"),)
    folders = {str(Path(flow).resolve().parent) for flow in flows if flow}
    if sys.platform != "linux" or len(folders) != 1 or not Path(next(iter(folders))).is_dir():
        return None
    try:
        chosen = read_settings({"warm": warm})
    except InputError:
        return None  # the command reports it
    wanted = chosen["warm"].value
    if wanted is None:
        wanted = sys.stderr.isatty() and os.environ.get("CI", "") in ("", "false", "0")
    plain = not (sys.warnoptions or sys.flags.optimize or sys.flags.isolated or sys.flags.dev_mode or sys.flags.no_site)
    if not (wanted and plain):
        return None
    with suppress(OSError):
        return _ask(next(iter(folders)), parse_duration_s(chosen["warm_idle"].value))
    return None


def _ask(folder: str, idle_s: float) -> int | None:
    place = warm_folder() / hashlib.sha256(f"{folder}\0{sys.executable}".encode()).hexdigest()[:16]
    make_own_folder(place)
    request = {
        "arguments": sys.argv[1:],
        "environment": dict(os.environ),
        "cwd": str(Path.cwd()),
        "path": sys.path,
        "umask": _umask(),
        "identity": _identity(),
    }
    replaced = False
    deadline = time.monotonic() + _BUSY_S
    while True:
        link = _connect(place)
        started = link is None
        if link is None:
            link = _start(place, folder, idle_s)
        with link:
            try:
                link.settimeout(_FIRST_TAKEN_S if started else _TAKEN_S)
                say(link, **request)
                answer = receive(link)
                if answer.get("say") == "taken":
                    # only now: a process that hangs would otherwise keep these streams open, and the reader of the command's output would
                    # wait for it
                    socket.send_fds(link, [b"."], [0, 1, 2])
                    return _followed(link)
            except (OSError, ValueError) as error:
                _cold(f"the warm process does not answer ({error})")
                return None
        if answer.get("say") == "busy" and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        elif answer.get("say") == "other" and not replaced:
            replaced = True  # the process gives up its place, so the next iteration starts a new one
        else:
            _cold("the warm process runs another command")
            return None


def _followed(link: socket.socket) -> int | None:
    """Forward Ctrl-C and SIGTERM, and wait for the exit status. None if the process died; the command then runs here."""
    link.settimeout(None)
    before = {number: signal.signal(number, lambda got, _: link.sendall(bytes([got]))) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        status = receive(link).get("status")
    except (OSError, ValueError):
        status = None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if status is None:
        _cold("the warm process has ended")
        return None
    return int(status)


def _cold(why: str) -> None:
    click.echo(f"{why}; the command runs without it", err=True)


def _connect(place: Path) -> socket.socket | None:
    link = socket.socket(socket.AF_UNIX)
    link.settimeout(_CONNECT_S)
    try:
        with short_path(place) as short:
            link.connect(f"{short}/socket")
        if is_own(link):
            return link
    except OSError:
        pass
    link.close()
    return None


def _start(place: Path, folder: str, idle_s: float) -> socket.socket:
    """Start a warm process that is connected to this command."""
    ours, theirs = socket.socketpair()
    command = [sys.executable, "-m", "scribengin.cli.warm_server", str(place), folder, str(idle_s), str(theirs.fileno())]
    with theirs, (place / "server.log").open("wb") as log:
        subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, pass_fds=[theirs.fileno()], start_new_session=True)
    return ours


def warm_folder() -> Path:
    """The folder with the sockets of this user's warm processes."""
    return cache_folder() / "warm"


def make_own_folder(place: Path) -> None:
    """Create the folder with access for this user only. Raises OSError if it belongs to another user."""
    for folder in (place.parent, place):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.lstat()
        if found.st_uid != os.geteuid() or not stat.S_ISDIR(found.st_mode):
            raise PermissionError(f"{folder} is not a folder of this user")
        folder.chmod(0o700)


def is_own(link: socket.socket) -> bool:
    """True if the kernel reports that the other end is a process of this user."""
    _, uid, _ = struct.unpack("3i", link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    return bool(uid == os.geteuid())


@contextmanager
def short_path(place: Path) -> Iterator[str]:
    """A path to the folder that is short enough for the 107 bytes of a socket's address."""
    handle = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{handle}"
    finally:
        os.close(handle)


@dataclass(frozen=True, slots=True)
class WarmProcess:
    """A running warm process: its folder of flows, its process id, and the folder of its socket."""

    folder: str
    pid: int
    place: Path


def warm_processes() -> list[WarmProcess]:
    """The warm processes of this user."""
    found = []
    for file in sorted(warm_folder().glob("*/info.json")):
        with suppress(OSError, ValueError, KeyError):
            known = json.loads(file.read_text())
            if Process(known["pid"], known["born"]).alive():
                found.append(WarmProcess(known["folder"], known["pid"], file.parent))
    return found


def end_warm(process: WarmProcess) -> None:
    """Ask the process to end after its current command. A process that does not answer is left alone."""
    link = _connect(process.place)
    if link is not None:
        with link, suppress(OSError, ValueError):
            link.settimeout(_TAKEN_S)
            say(link, say="end")
            receive(link)


def take_place(place: Path) -> int | None:
    """Lock the place of the folder's warm process. Returns the file descriptor that holds the lock; None if another process holds it."""
    lock = os.open(place / "lock", os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        return None
    return lock


def _identity() -> str:
    """A hash of all that must be equal for a warm process to answer like a new process: code, packages, Python, environment, working
    directory."""
    import scribengin

    seen = hashlib.sha256(f"{sys.version}\0{Path.cwd()}\0{sys.path}".encode())
    for place in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}:
        seen.update(f"{place} {Path(place).stat().st_mtime_ns}".encode())
    root = str(Path(scribengin.__file__).parent)
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        for name in sorted(files):
            found = os.stat(f"{folder}/{name}")  # noqa: PTH116
            seen.update(f"{folder}/{name} {found.st_mtime_ns} {found.st_size}".encode())
    for name, value in sorted(os.environ.items()):
        if name not in _OF_THE_TERMINAL:
            seen.update(f"{name}={value}\0".encode("utf-8", "surrogateescape"))
    return seen.hexdigest()


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def receive(link: socket.socket) -> dict[str, Any]:
    """The next message. Raises OSError if the connection ended."""
    value = json.loads(exactly(link, _LENGTH.unpack(exactly(link, _LENGTH.size))[0]))
    assert isinstance(value, dict)
    return value


def exactly(link: socket.socket, size: int) -> bytes:
    """Receive exactly `size` bytes. Raises OSError if the connection ends before."""
    data = b""
    while len(data) < size:
        more = link.recv(size - len(data))
        if not more:
            raise ConnectionError("the connection ended")
        data += more
    return data


def say(link: socket.socket, **value: Any) -> None:
    """Send a message over the socket."""
    data = json.dumps(value).encode()
    link.sendall(_LENGTH.pack(len(data)) + data)
