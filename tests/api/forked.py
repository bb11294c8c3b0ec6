"""The processes in which a master executes queries, forked from one that has loaded what they import: half a second of a core for each.

As a program, with the path of a socket: the process that forks them.
"""

from __future__ import annotations

import json
import os
import random
import selectors
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import traceback
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

LOADED = (
    *("api.planner_process", "api.state_handlers"),
    *(f"control.{name}" for name in ("rate_limits", "offsets", "resources", "submission", "topology")),
    *("local.dead_letters", "local.prepare", "packages.store"),
)
"""modules that these processes import once they know what is asked"""
_INT = struct.Struct("<q")


class Forked:
    """As much of a `subprocess.Popen` as a planner takes."""

    returncode: int | None = None

    def __init__(self, door: Path, stderr: IO[bytes], env: Mapping[str, str]) -> None:
        stdin, self._stdin = os.pipe()
        self._stdout, stdout = os.pipe()
        self._link = socket.socket(socket.AF_UNIX)
        self._link.connect(str(door))
        socket.send_fds(self._link, [b"."], [stdin, stdout, stderr.fileno()])
        os.close(stdin)
        os.close(stdout)
        asked = json.dumps({"env": dict(env), "folder": os.getcwd()}).encode()  # noqa: PTH109
        self._link.sendall(_INT.pack(len(asked)) + asked)
        (self.pid,) = _INT.unpack(_exactly(self._link, _INT.size))

    def __enter__(self) -> Forked:
        return self

    def __exit__(self, *_: object) -> None:
        self._wait()
        os.close(self._stdout)
        self._link.close()

    def communicate(self, given: bytes, limit_s: float) -> tuple[bytes, None]:
        """What it has written until its end. Raises subprocess.TimeoutExpired."""
        giving = threading.Thread(target=self._give, args=(given,), daemon=True)
        giving.start()
        ends_at, said = time.monotonic() + limit_s, bytearray()
        with selectors.DefaultSelector() as selector:
            selector.register(self._stdout, selectors.EVENT_READ)
            while selector.select(max(0.0, ends_at - time.monotonic())):
                if not (more := os.read(self._stdout, 65_536)):
                    self._wait()
                    return bytes(said), None
                said += more
        raise subprocess.TimeoutExpired(str(self.pid), limit_s)

    def _give(self, given: bytes) -> None:
        with suppress(BrokenPipeError), os.fdopen(self._stdin, "wb") as stdin:
            stdin.write(given)

    def _wait(self) -> None:
        if self.returncode is None:
            (self.returncode,) = _INT.unpack(_exactly(self._link, _INT.size))


def _exactly(link: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = link.recv(size - len(data))
        assert more, "the process that forks has ended"
        data += more
    return data


@contextmanager
def forking(folder: Path) -> Iterator[Any]:
    """What to call in place of `subprocess.Popen`."""
    door = folder / "door"
    with subprocess.Popen([sys.executable, __file__, str(door)], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == b"there\n"

        def popen(_command: Sequence[str], *, stderr: IO[bytes], env: Mapping[str, str], **_: Any) -> Forked:
            return Forked(door, stderr, env)

        try:
            yield popen
        finally:
            process.stdin.close()


def _serve(door: str) -> None:
    """Until stdin ends."""
    from scribengin.plan.sql.parse import parse_expression

    for name in LOADED:
        import_module(f"scribengin.{name}")
    parse_expression("id > 0")  # loads what reads SQL
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as listening, selectors.DefaultSelector() as selector:
        listening.bind(door)
        listening.listen(64)
        print("there", flush=True)
        selector.register(listening, selectors.EVENT_READ)
        selector.register(0, selectors.EVENT_READ)
        while all(key.fileobj is listening for key, _ in selector.select()):
            link, _ = listening.accept()
            with link:
                if not os.fork():
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    listening.close()
                    _attend(link)
                    os._exit(0)


def _attend(link: socket.socket) -> None:
    """Fork the process that is asked for, and tell its number, then its status."""
    _, descriptors, _, _ = socket.recv_fds(link, 1, 3)
    (size,) = _INT.unpack(_exactly(link, _INT.size))
    asked = json.loads(_exactly(link, size))
    pid = os.fork()
    if not pid:
        os.setsid()
        link.close()
        for number, descriptor in enumerate(descriptors):
            os.dup2(descriptor, number)
            os.close(descriptor)
        os._exit(_perform(**asked))
    for descriptor in descriptors:
        os.close(descriptor)
    link.sendall(_INT.pack(pid))
    _, status = os.waitpid(pid, 0)
    link.sendall(_INT.pack(os.waitstatus_to_exitcode(status)))


def _perform(env: dict[str, str], folder: str) -> int:
    from scribengin.api.planner_process import main

    os.chdir(folder)
    os.environ.clear()
    os.environ.update(env)
    sys.path[0] = folder
    random.seed()
    try:
        main()
    except BaseException:
        traceback.print_exc()
        return 1
    finally:
        sys.stderr.flush()
    return 0


if __name__ == "__main__":
    _serve(sys.argv[1])
