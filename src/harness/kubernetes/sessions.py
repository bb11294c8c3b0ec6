"""Processes of a container: they belong to one session of the operating system, and end with it, also if the kubelet is killed.

As a program (`python sessions.py`) it is the guard of a kubelet: it reads which sessions begin and end, and kills those that are left when
its standard input is closed. It needs only the standard library, so that it starts quickly.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

BEGIN, END = "begin", "end"
_ROUNDS = 10
_PROC = Path("/proc")


def members(session: int) -> list[int]:
    """The processes of a session that have not ended. On systems without `/proc` only its leader is known."""
    if not _PROC.exists():
        return [session]
    found = []
    for folder in _PROC.iterdir():
        if folder.name.isdigit():
            with suppress(OSError):
                state, _parent, _group, of, *_rest = (folder / "stat").read_text().rpartition(")")[2].split()
                if int(of) == session and state not in "ZX":
                    found.append(int(folder.name))
    return found


def signal_session(session: int, number: signal.Signals) -> None:
    """Send a signal to all processes of a session, whose leader must not have been waited for: its number is then no other's. Processes
    that left the session are not reached."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(session, number)
    for _ in range(_ROUNDS if number == signal.SIGKILL else 1):  # one that is about to die may start another
        others = [pid for pid in members(session) if pid != session]
        for pid in others:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)
        if not others:
            return


def main() -> None:
    """Guard sessions until the standard input ends."""
    sessions: set[int] = set()
    for line in sys.stdin:
        word, _, number = line.partition(" ")
        (sessions.add if word == BEGIN else sessions.discard)(int(number))
    for session in sessions:
        signal_session(session, signal.SIGKILL)


if __name__ == "__main__":
    main()
