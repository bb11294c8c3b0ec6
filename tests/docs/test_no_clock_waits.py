"""No test waits for a fixed time, or fails because a machine is slow: what a file of tests may not write, and where it may all the same."""

from __future__ import annotations

import ast
from pathlib import Path

TESTS = Path(__file__).parents[1]
LEAST_S = 60.0
"""what must come is waited for that long at least: a wait that succeeds costs nothing"""
POLLS_S = 1.0
"""a wait below it is one look of a loop"""
_WAITS = frozenset({"communicate", "join", "result", "run", "wait", "urlopen", "create_connection"})
_LOOKS = frozenset({"within", "gone_within"})
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


ALLOWED = {
    "connectors/kafka/test_sink.py": "a transaction that a test leaves open never ends: what is read after a while is what stands there",
}
"""file → why its short waits are meant"""


def test_no_wait_for_what_must_come_is_short_and_no_port_is_fixed() -> None:
    found = [
        f"{path.relative_to(TESTS)}:{line}: {what}"
        for path in sorted(TESTS.rglob("*.py"))
        if str(path.relative_to(TESTS)) not in ALLOWED
        for line, what in found_in(path.read_text())
    ]
    assert not found, "\n".join(found)
    assert all(found_in((TESTS / name).read_text()) for name in ALLOWED), "what is not needed any more is not allowed"


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
