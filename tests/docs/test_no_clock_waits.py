"""No test waits for a fixed time, or fails because a machine is slow: what a file of tests may not write, and where it may all the same."""

from __future__ import annotations

import ast
from pathlib import Path

TESTS = Path(__file__).parents[1]
LEAST_S = 60.0
"""what must come is waited for that long at least: a wait that succeeds costs nothing"""
POLLS_S = 1.0
"""a wait below it is one look of a loop"""
_WAITS = frozenset({"communicate", "join", "result", "run", "wait", "wait_for", "urlopen", "create_connection"})
_LOOKS = frozenset({"within", "gone_within"})
_ENDS = (ast.Break, ast.Return, ast.Assert, ast.Raise)
"""what a loop over numbers has that looks for a condition"""
_SERVERS = frozenset({"bind", "create_server", "HTTPServer", "ThreadingHTTPServer"})


def _name(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else call.func.id if isinstance(call.func, ast.Name) else ""


def _number(node: ast.expr | None) -> float | None:
    return float(node.value) if isinstance(node, ast.Constant) and type(node.value) in (int, float) else None


def _short(seconds: float | None) -> bool:
    return seconds is not None and POLLS_S < seconds < LEAST_S


def found_in(text: str) -> list[tuple[int, str]]:
    """(line, what is wrong there)"""
    found: list[tuple[int, str]] = []
    for node in ast.walk(ast.parse(text)):
        asserted = node.test if isinstance(node, ast.Assert) else None
        if isinstance(asserted, ast.Compare) and len(asserted.ops) == 1 and isinstance(asserted.ops[0], (ast.Lt, ast.LtE)):
            clock = ast.unparse(asserted.left).startswith(("time.monotonic() -", "time.perf_counter() -"))
            bound = _number(asserted.comparators[0])
            if clock and bound is not None and bound < LEAST_S:
                found.append((node.lineno, f"fails where {bound:g} s of wall time have passed"))
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add) and ast.unparse(node.left) == "time.monotonic()":
            seconds = _number(node.right)
            if _short(seconds):
                found.append((node.lineno, f"gives up after {seconds:g} s"))
        if not isinstance(node, ast.Call):
            continue
        name, first = _name(node), node.args[0] if node.args else None
        limits = [_number(each.value) for each in node.keywords if each.arg == "timeout"] if name in _WAITS else []
        limits += [_number(first)] if name in _LOOKS or (name in _WAITS and isinstance(node.func, ast.Attribute)) else []
        found += [(node.lineno, f"{name} gives up after {limit:g} s") for limit in limits if limit is not None and _short(limit)]
        if name in _SERVERS and isinstance(first, ast.Tuple) and len(first.elts) == 2 and _number(first.elts[1]):
            found.append((node.lineno, f"{name} takes a fixed port"))
    return sorted(found)


def sleeps_in(text: str) -> list[int]:
    """The lines of `time.sleep` in no loop that looks for something: whoever sleeps there believes to know how long others take."""
    found: list[int] = []

    def walk(node: ast.AST, *, looks: bool) -> None:
        if isinstance(node, ast.FunctionDef | ast.Lambda):
            looks = False
        elif isinstance(node, ast.While):
            looks = True
        elif isinstance(node, ast.For):
            looks = looks or any(isinstance(each, _ENDS) for each in ast.walk(node))
        elif isinstance(node, ast.Call) and _name(node) == "sleep" and ast.unparse(node.func) == "time.sleep" and not looks:
            found.append(node.lineno)
        for child in ast.iter_child_nodes(node):
            walk(child, looks=looks)

    if "time.sleep" in text:
        walk(ast.parse(text), looks=False)
    return sorted(found)


ALLOWED: dict[str, str] = {}
"""file → why its short waits are meant"""
SLEEPS = {
    "agent/own_input.py": (1, "the wait of an input"),
    "agent/test_process.py": (1, "it is killed at any moment"),
    "api/test_events_api.py": (1, "writes come one after the other for a while, however fast"),
    "connectors/kafka/test_protocol.py": (1, "commits around a time-out of the broker: each end of them is right"),
    "connectors/kafka/test_source.py": (2, "a broker's time has milliseconds: what stands before and behind must have another one"),
    "connectors/objects/test_hdfs_flows.py": (2, "a server is away for a minute"),
    "connectors/objects/test_hdfs_state_flows.py": (2, "a server is away for so long"),
    "connectors/plain/test_http_flows.py": (1, "nothing happens"),
    "control/test_alert_dispatcher.py": (1, "nothing happens"),
    "control/test_up.py": (1, "nothing happens"),
    "end_to_end/stores/test_four_sinks.py": (2, "a server is away for so long, and nothing happens"),
    "hosts/test_kept_up.py": (1, "nothing happens"),
    "hosts/test_take_over.py": (1, "nothing happens"),
    "launch/counting.py": (1, "a task that lasts so long that both executors get one"),
    "launch/test_standalone.py": (1, "a keeper finds a JVM by looking now and then, and tells nobody"),
    "launch/yarn_program.py": (1, "the work of a task, in an executor"),
    "local/test_leases_at_once.py": (1, "it is killed there"),
    "spark/test_work_clock.py": (1, "a sleep is what is measured"),
    "worker/test_registry_away.py": (4, "a server is away for longer than a session, and nothing happens"),
    "worker/test_reporter.py": (1, "reports come for a while, however many"),
}
"""file → (how many sleeps that wait for no condition it has, why they are meant). A machine that is slow makes none of them fail: to see
that nothing happens one can only wait"""


def test_no_wait_for_what_must_come_is_short_and_no_port_is_fixed() -> None:
    found = [
        f"{path.relative_to(TESTS)}:{line}: {what}"
        for path in sorted(TESTS.rglob("*.py"))
        if str(path.relative_to(TESTS)) not in ALLOWED
        for line, what in found_in(path.read_text())
    ]
    assert not found, "\n".join(found)
    assert all(found_in((TESTS / name).read_text()) for name in ALLOWED), "what is not needed any more is not allowed"


def test_nobody_sleeps_instead_of_looking() -> None:
    found = {str(path.relative_to(TESTS)): sleeps_in(path.read_text()) for path in sorted(TESTS.rglob("*.py"))}
    counts = {name: len(lines) for name, lines in found.items() if lines}
    expected = {name: many for name, (many, _) in SLEEPS.items()}
    assert counts == expected, {name: found[name] for name in counts if counts[name] != expected.get(name)}


def test_a_sleep_is_found_where_no_loop_looks_for_something() -> None:
    bad = ("time.sleep(1)", "for _ in range(3):\n    time.sleep(1)", "while not there():\n    def later(): time.sleep(2)")
    assert [len(sleeps_in(each)) for each in bad] == [1] * len(bad)
    good = ("while not there():\n    time.sleep(0.1)", "for _ in range(9):\n    if there(): break\n    time.sleep(1)", "clock.sleep(1)")
    assert [sleeps_in(each) for each in good] == [[]] * len(good)


def test_what_a_busy_machine_breaks_is_found() -> None:
    bad = (
        "assert time.monotonic() - begun < 2",
        "deadline = time.monotonic() + 4",
        "process.communicate(timeout=20)",
        "thread.join(10)",
        "within(30, there)",
        'socket.create_server(("127.0.0.1", 8080))',
    )
    assert [len(found_in(each)) for each in bad] == [1] * len(bad)
    good = ("within(60, there)", "while not over.wait(0.01): pass", 'socket.create_server(("127.0.0.1", 0))', "time.monotonic() + 120")
    assert [found_in(each) for each in good] == [[]] * len(good)
