"""Brings a notice of an alert to where the flow file says: a webhook, a command. Each within its time, whatever happens there."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from typing import TYPE_CHECKING

import httpx2

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scribengin.watching.alerts import AlertNotice

WEBHOOK_S, COMMAND_S = 10.0, 30.0
"""for one try; for a command in all"""
TRIES_S = (0.0, 2.0, 10.0)
"""how long is waited before each try of a webhook"""
_KEPT = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "USER")
"""of the master's environment: the rest may hold secrets"""


def post(url: str, notice: AlertNotice, tries_s: Sequence[float] = TRIES_S) -> str:
    """POST it as JSON until a 2xx comes; the reason of the last try where none has come, else an empty text."""
    why = ""
    for wait_s in tries_s:
        time.sleep(wait_s)
        try:
            answer = httpx2.post(url, json=notice.as_json(), timeout=WEBHOOK_S)
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
            why = f"{type(error).__name__}: {error}"
            continue
        if answer.is_success:
            return ""
        why = f"it answered {answer.status_code}"
        if answer.status_code < 500 and answer.status_code != 429:
            break  # it will answer so again
    return why


def execute(command: Sequence[str], notice: AlertNotice, limit_s: float = COMMAND_S) -> str:
    """Run the program, without a shell; why it failed, else an empty text. With all that it has started it is killed after `limit_s`.

    Its environment: SCRIBENGIN_ALERT_FLOW, _NAME, _STATE, _WHEN, _VALUE, _AT, and what a program needs of the master's.
    """
    facts = {"FLOW": notice.flow, "NAME": notice.alert, "STATE": notice.state, "WHEN": notice.when, "VALUE": notice.value, "AT": notice.at}
    environment = {name: os.environ[name] for name in _KEPT if name in os.environ}
    environment |= {f"SCRIBENGIN_ALERT_{name}": value for name, value in facts.items()}
    try:
        process = subprocess.Popen(
            list(command),
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        return f"it cannot be started: {error}"
    try:
        status = process.wait(limit_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return f"it had not ended after {limit_s:g} s, and was killed"
    return f"it ended with status {status}" if status else ""
