"""The alert dispatcher: the leading master checks the alerts of flows, and threads send them: a target that hangs or fails blocks nothing
else.

The firing alerts are recorded in the registry after all targets were notified. So the next master continues where the last one was: an
alert is sent a second time only if a master ended between sending and writing, once for each such end. The time for which a condition must
hold starts from zero after a failover.
"""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import threading
import time
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

import httpx2

from scribengin.core.errors import Refused, ScribenginError
from scribengin.core.problems import did_you_mean
from scribengin.core.time_text import moment_text
from scribengin.registry.contract import Conflict
from scribengin.registry.record_io import Stored, put, read_record
from scribengin.registry.records import AlertRecord, Alerts
from scribengin.registry.tree import ALERTS
from scribengin.watching.alerts import AlertNotice, AlertState, WatchedFlow, next_state
from scribengin.watching.flow_figures import figures_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from structlog.typing import FilteringBoundLogger

    from scribengin.control.world import FlowSeen
    from scribengin.registry.contract import Registry, Term
    from scribengin.registry.records import AlertSpec
    from scribengin.watching.telemetry import Board


# Delivers a notice of an alert to its target in the flow file: a webhook, a command. Each has a time limit, whatever happens there.


WEBHOOK_S, COMMAND_S = 10.0, 30.0
"""seconds for one try of a webhook; for a command in all"""
TRIES_S = (0.0, 2.0, 10.0)
"""seconds before each try of a webhook"""
_KEPT = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "USER")
"""the passed variables of the master's environment: the rest may hold secrets"""


def post(url: str, notice: AlertNotice, tries_s: Sequence[float] = TRIES_S) -> str:
    """POST the notice as JSON until a 2xx answer arrives.

    Args:
        url: the webhook of the alert.
        notice: what is sent.
        tries_s: seconds to wait before each try; their number is the number of tries.

    Returns:
        Why the last try failed; an empty text if the notice was delivered. An answer such as 404, which a further try would not change,
        ends the tries.
    """
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
            break  # a further try would get the same answer
    return why


def execute(command: Sequence[str], notice: AlertNotice, limit_s: float = COMMAND_S) -> str:
    """Run the program, without a shell.

    Its environment: SCRIBENGIN_ALERT_FLOW, _NAME, _STATE, _WHEN, _VALUE, _AT, and the variables of the master's in `_KEPT`.

    Args:
        command: the program and its arguments.
        notice: what the environment describes.
        limit_s: seconds after which the program, and all processes that it started, are killed.

    Returns:
        Why it failed; an empty text if it succeeded.
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
        return f"it did not end within {limit_s:g} s and was killed"
    return f"it ended with status {status}" if status else ""


EVERY_S = 2.0
_THREADS = 4
_WAITING = 1_000
"""notices that wait to be sent; further ones are only logged"""


class AlertDispatcher:
    """The alert dispatcher of a master. `evaluate` is for the master's thread, the other methods for any thread. `close` ends its threads,
    which finish their current work."""

    def __init__(
        self,
        registry: Registry,
        board: Board,
        log: FilteringBoundLogger,
        agents: Callable[[str], Mapping[str, float] | None] = lambda _flow: None,
    ) -> None:
        """Create it.

        Args:
            registry: where firing alerts are kept.
            board: the reports of workers.
            log: the log of the master, which gets all alerts.
            agents: flow → agent → since when it is away, in seconds since 1970; None if that is not known.
        """
        self._agents = agents
        self._registry = registry
        self._board = board
        self._log = log
        self._lock = threading.Lock()
        self._states: dict[str, dict[str, AlertState]] = {}
        self._specs: dict[str, Mapping[str, AlertSpec]] = {}
        self._wanted_since: dict[str, float] = {}
        self._told: set[str] = set()
        """flows whose notices were all sent, but not recorded yet"""
        self._under_way: dict[str, int] = {}
        """flow → notices that are being sent"""
        self._term: Term | None = None
        self._looked = 0.0
        self._queue: queue.Queue[Callable[[], None] | None] = queue.Queue(_WAITING)
        self._sending = False

    def evaluate(self, flows: Mapping[str, FlowSeen], term: Term) -> None:
        """Check which alerts fire now, if it is time. Raises FencedError, Unreachable as the registry does."""
        now = self._board.now()
        if term != self._term:  # this master has just become the leader: what earlier leaders sent is recorded in the registry
            self._forget()
            self._term = term
        elif 0.0 <= now - self._looked < EVERY_S:
            return
        self._looked = now
        for gone in [name for name in self._specs if name not in flows]:
            self._drop(gone)
        for name, flow in flows.items():
            if flow.watched.alerts or name in self._specs:
                self._look_at(name, flow, now)
        self._write(term)

    def standing(self, flow: str) -> list[dict[str, Any]]:
        """The flow's firing alerts, as JSON."""
        with self._lock:
            specs, states = self._specs.get(flow, {}), dict(self._states.get(flow, {}))
        return [_as_json(name, spec, states.get(name, AlertState())) for name, spec in specs.items()]

    def firing(self, flow: str) -> tuple[tuple[str, bool], ...]:
        """(name, True if it fires) of each alert of the flow."""
        return tuple((each["alert"], each["state"] == "firing") for each in self.standing(flow))

    def test(self, flow: str, alert: str | None = None) -> list[dict[str, Any]]:
        """Send a test to each target of all its alerts, or of one; returns the result of each. Raises Refused if there is no such alert."""
        with self._lock:
            specs = self._specs.get(flow, {})
        if alert is not None and alert not in specs:
            known = f"its alerts are {', '.join(specs)}" if specs else "the flow file has no `alerts`"
            raise Refused(f'flow {flow} has no alert "{alert}"', remedy=did_you_mean(alert, specs) or known, code="alert-unknown")
        found = []
        for name, spec in specs.items():
            if alert in (None, name):
                notice = AlertNotice(flow, name, "test", spec.when, "a test; no condition was met", moment_text(self._board.now()))
                self._log.info("alert", message=str(notice))
                found.append({"alert": name, "target": "log", "ok": True, "message": ""})
                for target, send in _targets(spec, notice, tries_s=(0.0,)):
                    why = send()
                    found.append({"alert": name, "target": target, "ok": not why, "message": why})
        return found

    def close(self) -> None:
        """Stop sending."""
        for _ in range(_THREADS):
            try:
                self._queue.put_nowait(None)
            except queue.Full:
                return

    def _look_at(self, name: str, flow: FlowSeen, now: float) -> None:
        states = self._states.get(name)
        if states is None:
            states = self._stored(name)
        runs = flow.wish.goal == "running"
        if not runs:
            self._wanted_since.pop(name, None)
        tiers = self._board.tiers(name)
        expected = flow.wanted_tiers if flow.wanted_tiers is not None else frozenset(flow.tiers)
        since = self._wanted_since.setdefault(name, now) if runs else now
        seen = WatchedFlow(figures_of(name, tiers, now), tiers, expected, since, self._agents(name))
        specs = flow.watched.alerts
        after: dict[str, AlertState] = {}
        with self._board.reading:
            for alert, spec in specs.items():
                before = states.get(alert, AlertState())
                try:
                    after[alert] = next_state(before, spec.when, seen, now) if runs else _ended(before, now)
                except ValueError:  # the condition is of a newer Scribengin
                    after[alert] = before
        with self._lock:
            self._states[name], self._specs[name] = after, specs
        for alert, state in after.items():
            before = states.get(alert, AlertState())
            if (state.standing == "firing") != (before.standing == "firing"):
                said: Literal["firing", "resolved"] = "firing" if state.standing == "firing" else "resolved"
                self._ring(specs[alert], AlertNotice(name, alert, said, specs[alert].when, state.value, moment_text(now)))
        if any(state.standing == "firing" for alert, state in states.items() if alert not in after):
            self._told.add(name)  # an alert that was removed from the file

    def _stored(self, flow: str) -> dict[str, AlertState]:
        found = read_record(self._registry, ALERTS(flow))
        if not isinstance(found, Stored):
            return {}
        now = self._board.now()
        return {
            name: AlertState("firing", _seconds(each.since, now), each.value) for name, each in found.record.alerts.items() if each.firing
        }

    def _ring(self, spec: AlertSpec, notice: AlertNotice) -> None:
        level = self._log.warning if notice.state == "firing" else self._log.info
        level("alert", message=str(notice))
        for target, send in _targets(spec, notice):
            self._enqueue(notice, target, send)
        with self._lock:
            if not self._under_way.get(notice.flow):
                self._told.add(notice.flow)

    def _enqueue(self, notice: AlertNotice, target: str, send: Callable[[], str]) -> None:
        def job() -> None:
            try:
                why = send()
            except Exception as error:  # whatever a target does, the next one is notified
                why = f"{type(error).__name__}: {error}"
            if why:
                self._log.warning("alert not delivered", message=f"{target}: {why}; {notice}")
            self._sent(notice.flow)

        with self._lock:
            self._under_way[notice.flow] = self._under_way.get(notice.flow, 0) + 1
            if not self._sending:
                self._sending = True
                for number in range(_THREADS):
                    threading.Thread(target=self._send, name=f"alerts-{number}", daemon=True).start()
        try:
            self._queue.put_nowait(job)
        except queue.Full:
            self._log.warning("alert not delivered", message=f"{target}: {_WAITING:,} notices are queued already; {notice}")
            self._sent(notice.flow)

    def _sent(self, flow: str) -> None:
        with self._lock:
            self._under_way[flow] -= 1
            if not self._under_way[flow]:
                del self._under_way[flow]
                self._told.add(flow)

    def _send(self) -> None:
        while (job := self._queue.get()) is not None:
            job()

    def _write(self, term: Term) -> None:
        with self._lock:
            told, self._told = self._told, set()
            records = {
                flow: Alerts(
                    alerts={
                        name: AlertRecord(firing=True, since=moment_text(state.since), value=state.value)
                        for name, state in self._states.get(flow, {}).items()
                        if state.standing == "firing"
                    }
                )
                for flow in told
            }
        for flow, record in records.items():
            try:
                self._registry.commit(put(self._registry, ALERTS(flow), record), term=term)
            except Conflict:  # the flow was deleted, or its record was written at the same time
                with self._lock:
                    self._told.add(flow)
            except ScribenginError:
                with self._lock:
                    self._told.add(flow)
                raise

    def _drop(self, flow: str) -> None:
        with self._lock:
            for known in (self._states, self._specs, self._wanted_since):
                known.pop(flow, None)
            self._told.discard(flow)

    def _forget(self) -> None:
        with self._lock:
            self._states.clear()
            self._specs.clear()
            self._wanted_since.clear()
            self._told.clear()


def _targets(spec: AlertSpec, notice: AlertNotice, tries_s: tuple[float, ...] | None = None) -> list[tuple[str, Callable[[], str]]]:
    targets: list[tuple[str, Callable[[], str]]] = []
    if spec.webhook:
        targets.append(("webhook", lambda: post(spec.webhook, notice) if tries_s is None else post(spec.webhook, notice, tries_s)))
    if spec.command:
        targets.append(("command", lambda: execute(spec.command, notice)))
    return targets


def _ended(before: AlertState, now: float) -> AlertState:
    """The state of an alert of a flow whose desired state is not running: its condition is not checked."""
    return before if before.standing == "quiet" else AlertState("quiet", now, "the flow's desired state is not running")


def _as_json(name: str, spec: AlertSpec, state: AlertState) -> dict[str, Any]:
    targets = ["log", *(["webhook"] if spec.webhook else []), *(["command"] if spec.command else [])]
    since = moment_text(state.since) if state.since else None
    return {"alert": name, "when": spec.when, "state": state.standing, "since": since, "value": state.value, "targets": targets}


def _seconds(text: str, otherwise: float) -> float:
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return otherwise
