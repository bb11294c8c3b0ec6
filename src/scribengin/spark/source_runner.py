"""Spark's planner processes, forked: one for each source of each query, which Spark starts as `python -m RUNNER`.

As a new process each imports PySpark and Arrow for itself, 0.4 s of a core. So the first of a Java loads them, forks a process that waits
for others, and does its own work; the others are forked from that one. Whoever Spark has started for them stays until they end, for
that is the process that Spark ends; with it ends its own.

`python -I -S source_runner.py` is that process: it loads few modules, and if no process answers it becomes the first.
"""

from __future__ import annotations

import os
import socket
import struct
import sys

RUNNER = "pyspark.sql.streaming.python_streaming_source_runner"
_LOADED = (
    "encodings.idna",
    "pyspark.sql.datasource_internal",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.worker_util",
    "scribengin.connectors.files.source",
    "scribengin.formats.catalog",
    "scribengin.formats.csv",
    "scribengin.formats.json",
    "scribengin.spark.source_input",
    "scribengin.spark.program",
)
_TAKEN = b"+"
_SIZE_BYTES = 8
_RECEIVE_S = 10.0
_IDLE_S = 60
"""after the last one has ended: a Java may be kept for hours without a query"""
_WAITING = 128
TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import NoReturn


def ask() -> None:
    """Pass the work to the forked process of this Java, and return when it has ended; else become a process that does it."""
    try:
        space = os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        _become(RUNNER)
    # a name without a file, which is gone with its owner; of this Java alone, also where containers share a network
    name = f"\0scribengin-runner-{space}-{os.getppid()}"
    for _ in range(2):
        link = socket.socket(socket.AF_UNIX)
        try:
            link.connect(name)
        except OSError:
            pass
        else:
            if _is_own(link) and _handed_over(link):
                return
            break
        listening = socket.socket(socket.AF_UNIX)
        try:
            listening.bind(name)
            listening.listen(_WAITING)
        except OSError:  # another one begins at the same time
            continue
        listening.set_inheritable(True)
        _become("scribengin.spark.source_runner", str(listening.fileno()))
    _become(RUNNER)


def _is_own(link: socket.socket) -> bool:
    """Whether the other end belongs to the same user: who may read our environment, or has us work for him."""
    _, user, _ = struct.unpack("3i", link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    return bool(user == os.geteuid())


def _handed_over(link: socket.socket) -> bool:
    """False if it was not taken."""
    try:
        body = b"\0".join([os.getcwdb(), *(name + b"=" + value for name, value in os.environb.items())])
        socket.send_fds(link, [len(body).to_bytes(_SIZE_BYTES, "big")], [0, 1, 2])
        link.sendall(body)
        taken = link.recv(1) == _TAKEN
        while taken and link.recv(1):
            pass
    except OSError:
        return False
    return taken


def _become(module: str, *arguments: str) -> NoReturn:
    os.execv(sys.executable, [sys.executable, "-m", module, *arguments])


def be_first(listening: socket.socket) -> None:
    """Load what all need, leave a process that forks others, and do one's own work."""
    import gc
    from contextlib import suppress
    from importlib import import_module

    java = os.getppid()
    for name in _LOADED:
        with suppress(ImportError):  # another PySpark, whose runner has others
            import_module(name)
    import_module("scribengin.connectors.catalog").source_types()  # looks through the installed packages, once for all
    gc.freeze()  # no collection walks through it, and so copies it, page by page
    if os.fork():
        listening.close()
    else:
        _serve(listening, java)
    _run()


def _run() -> None:
    from runpy import run_module

    sys.argv = [RUNNER]
    run_module(RUNNER, run_name="__main__", alter_sys=True)


def _serve(listening: socket.socket, java: int) -> None:
    """Serve until that Java process has ended, or no request came for a while; returns in each process that is forked."""
    import select
    import signal
    from contextlib import suppress

    null = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(null, number)
    os.close(null)
    try:
        life = os.pidfd_open(java)
    except OSError:
        os._exit(0)
    links: dict[int, tuple[socket.socket, int]] = {}
    """of the process that Spark has started → its connection, the number of the one that works for it"""
    ends: dict[int, int] = {}
    """of the one that works → of the connection"""
    poll = select.poll()
    for each in (life, listening.fileno()):
        poll.register(each, select.POLLIN)
    while True:
        found = poll.poll(None if links else _IDLE_S * 1000)
        number = found[0][0] if found else life  # one alone: what is done about it may give the number of another one to a new file
        if number == life:
            os._exit(0)
        elif number == listening.fileno():
            link, _ = listening.accept()
            asked = _received(link) if _is_own(link) else None
            if asked is None:
                link.close()
                continue
            child = os.fork()
            if not child:
                link.close()
                listening.close()
                for other, _ in links.values():
                    other.close()
                for held in (life, *ends):
                    os.close(held)
                _dress(*asked)
                return
            for handle in asked[1]:
                os.close(handle)
            with suppress(OSError):
                link.sendall(_TAKEN)
            end = os.pidfd_open(child)
            links[link.fileno()], ends[end] = (link, child), link.fileno()
            for each in (end, link.fileno()):
                poll.register(each, select.POLLIN)
        elif number in ends:
            link, child = links.pop(ends.pop(number))
            for each in (number, link.fileno()):
                with suppress(KeyError):
                    poll.unregister(each)
            os.close(number)
            link.close()
            os.waitpid(child, 0)
        else:  # Spark has ended the process that it knows
            poll.unregister(number)
            os.kill(links[number][1], signal.SIGTERM)


def _received(link: socket.socket) -> tuple[list[bytes], list[int]] | None:
    """Its folder and environment, and what it reads and writes; None if it has gone away."""
    link.settimeout(_RECEIVE_S)
    try:
        head, handles, _, _ = socket.recv_fds(link, _SIZE_BYTES, 3)
        body = b""
        while len(head) < _SIZE_BYTES or len(body) < int.from_bytes(head, "big"):
            part = link.recv(1 << 16)
            if not part:
                raise ConnectionError
            lacks = _SIZE_BYTES - len(head)
            head, body = head + part[:lacks], body + part[lacks:]
    except OSError:
        return None
    link.settimeout(None)
    return body.split(b"\0"), handles


def _dress(words: list[bytes], handles: list[int]) -> None:
    """Give this process the environment of the requesting process."""
    for number, handle in enumerate(handles):
        os.dup2(handle, number)
        os.close(handle)
    here, *pairs = words
    os.environb.clear()
    os.environb.update(dict(pair.split(b"=", 1) for pair in pairs))
    os.chdir(here)


if __name__ == "__main__":
    if len(sys.argv) == 2:
        be_first(socket.socket(fileno=int(sys.argv[1])))
    else:
        ask()
