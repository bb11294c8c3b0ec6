"""Logs as people read them."""

from datetime import UTC, datetime

import pytest

from scribengin.cli.commands import logs
from scribengin.cli.commands.logs import _show
from scribengin.cli.log_text import folded, new_lines, since
from scribengin.core.errors import Unreachable

FAILED = """\
2026-11-26T17:49:05.592158Z info    query started query=kept once=True
2026-11-26T17:49:11.447639Z error   query failed query=kept message='no such id' tries=1
    Traceback (most recent call last):
      File "/opt/venv/lib/python3.11/site-packages/py4j/clientserver.py", line 644, in _call_proxy
        return_value = getattr(self.pool[obj_id], method)(*params)
                       ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
      File "/opt/scribengin/spark/python_step.py", line 272, in _bury
        raise StepError(message)
      File "/tmp/x/code/ab12.zip/drift.py", line 4, in check
        raise KeyError(row["id"])
      File "<frozen runpy>", line 88, in _run_code
    KeyError: 7
    \tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:581)
    \t... 3 more
2026-11-26T17:49:12.1Z info    run ended state=failed
""".splitlines()


def test_the_line_of_the_users_code_stands_first_and_other_frames_are_folded():
    assert folded(FAILED) == [
        "2026-11-26T17:49:05Z info    query started query=kept once=True",
        "2026-11-26T17:49:11Z error   query failed query=kept message='no such id' tries=1",
        "    your code: drift.py:4 in check",
        "    Traceback (most recent call last):",
        "      … 2 frames of Scribengin, Spark and Python (--all shows them)",
        '      File "drift.py", line 4, in check',
        '        raise KeyError(row["id"])',
        "      … 1 frame of Scribengin, Spark and Python (--all shows them)",
        "    KeyError: 7",
        "      … 2 frames of Scribengin, Spark and Python (--all shows them)",
        "2026-11-26T17:49:12Z info    run ended state=failed",
    ]


def test_milestones_of_a_start_are_told_in_words():
    (line,) = folded(['start: {"born": 1795647263.332, "spark": 1795647270.1, "committed": 1795647275.832}'])
    assert line.endswith("Z started; first Batch committed 12s after the process began")


def test_other_lines_stay_as_they_are():
    lines = ["printed by a step", "  indented", "", 'File "half a frame']
    assert folded(lines) == lines


@pytest.mark.parametrize(("second", "kept"), [(4, 15), (6, 14), (12, 1), (13, 0)])
def test_since_begins_at_a_moment_and_keeps_what_belongs_to_it(second, kept):
    assert len(since(FAILED, datetime(2026, 11, 26, 17, 49, second, tzinfo=UTC))) == kept


@pytest.mark.parametrize(
    ("before", "now", "new"),
    [
        ([], ["a"], ["a"]),
        (["a", "b"], ["a", "b"], []),
        (["a", "b"], ["a", "b", "c"], ["c"]),
        (["a", "b", "c"], ["b", "c", "d"], ["d"]),
        (["a", "a"], ["a", "a", "a"], ["a"]),
        (["a", "b"], ["x", "y"], ["x", "y"]),
    ],
)
def test_only_new_lines_follow(before, now, new):
    assert new_lines(before, now) == new


def test_a_wrong_time_says_both_forms(command):
    ended = command("logs", "orders", "--since", "yesterday")
    assert ended.status == 2
    assert '"yesterday" is not a valid time; write it as "2026-01-31T12:00:00Z", or as a duration before now' in ended.err


def test_lines_are_counted_when_tracebacks_are_folded(capsys):
    _show([{"tier": "main", "node": "", "file": "run.log", "problem": "", "lines": FAILED}], 10, everything=False)
    head, *lines = capsys.readouterr().out.splitlines()
    assert head == "--- tier main: run.log"
    assert len(lines) == 10
    assert "query failed" in lines[0]
    assert lines[1] == "    your code: drift.py:4 in check"


def test_follow_prints_what_is_new_until_it_is_interrupted(capsys, monkeypatch):
    files = {"tier": "main", "node": "", "file": "run.log", "problem": ""}
    looks = [["a", "b", "c"], ["a", "b", "c"], ["a", "b", "c", "d"], Unreachable("away"), ["c", "d", "e"], KeyboardInterrupt()]

    def look(_most):
        found = looks.pop(0)
        if isinstance(found, BaseException):
            raise found
        return [{**files, "lines": found}]

    monkeypatch.setattr(logs.time, "sleep", lambda _s: None)
    logs._follow(look, 2, everything=False)
    assert capsys.readouterr().out.splitlines() == [
        "--- tier main: run.log", "b", "c", "--- tier main: run.log", "d", "--- tier main: run.log", "e",
    ]  # fmt: skip
