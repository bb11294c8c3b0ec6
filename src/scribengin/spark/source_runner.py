"""Spark's planner processes, forked: Spark starts one for each source of each query, as `python -m RUNNER`.

A new process imports PySpark and Arrow, which takes 0.4 s of a core. So the first process of a Java loads them, forks a server process that
waits for requests, and does its own work; the other processes are forked from the server. The process that Spark started for such a fork
waits until the fork ends, since it is the one that Spark ends; the fork then ends too.

`python -I -S source_runner.py` is the process that Spark starts: it loads few modules, and becomes the first one if no server answers.
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
"""the time after the end of the last fork: a Java may be kept for hours without a query"""
_WAITING = 128
TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import NoReturn


def ask() -> None:
    """Pass the work to the server process of this Java, and return when it has ended; without a server become a process that does the
    work."""
    try:
        space = os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        _become(RUNNER)
    # an abstract socket, which disappears with its owner; named for this Java, also if containers share a network
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
        except OSError:  # another process has become the first at the same time
            continue
        listening.set_inheritable(True)
        _become("scribengin.spark.source_runner", str(listening.fileno()))
    _become(RUNNER)


def _is_own(link: socket.socket) -> bool:
    """True if the process at the other end belongs to the same user: it may read our environment and let us work for it."""
    _, user, _ = struct.unpack("3i", link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    return bool(user == os.geteuid())


def _handed_over(link: socket.socket) -> bool:
    """Pass our environment and files to the server, and wait until the fork ends; False if the server did not accept them."""
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
    """Load the common modules, fork the server process, and do this process's own work."""
    import gc
    from contextlib import suppress
    from importlib import import_module

    java = os.getppid()
    for name in _LOADED:
        with suppress(ImportError):  # another PySpark, whose runner needs other modules
            import_module(name)
    import_module("scribengin.connectors.catalog").source_types()  # scans the installed packages, once for all forks
    gc.freeze()  # a collection does not visit these objects, which would copy their pages
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
    """Serve until the Java process has ended, or no request came for a while. In each fork the function returns."""
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
    """the process that Spark has started → (its connection, the process handle of its fork)"""
    ends: dict[int, int] = {}
    """the process handle of a fork → the connection's file number"""
    poll = select.poll()
    for each in (life, listening.fileno()):
        poll.register(each, select.POLLIN)
    while True:
        found = poll.poll(None if links else _IDLE_S * 1000)
        number = found[0][0] if found else life  # one event at a time: handling it may reuse the file number of another
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
        else:  # Spark has ended the process that it started
            poll.unregister(number)
            os.kill(links[number][1], signal.SIGTERM)


def _received(link: socket.socket) -> tuple[list[bytes], list[int]] | None:
    """(the sender's folder and environment, its standard files); None if it has gone."""
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
