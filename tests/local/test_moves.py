"""A flow that has run is cut, cut otherwise and fused again: each record comes out once, and the ledger balances over all of it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from scribengin.cli.commands.offsets import set_ as set_offset
from scribengin.cli.commands.reset import command as reset
from scribengin.core import faults
from scribengin.core.errors import Refused
from scribengin.local.audit import audit_flow, planned_changes
from scribengin.local.dead_letter_replay import replay
from scribengin.local.dead_letters import Which
from scribengin.local.prepare import prepare
from scribengin.local.status import read_standing
from scribengin.local.stored_queries import letters_waiting
from scribengin.state.folder import StateFolder
from scribengin.state.lease import take_lease
from scribengin.state.replays import Replays
from scribengin.state.topology import Journal, tiers_with_state

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from conftest import FlowFolder

    from scribengin.local.contract import RunView

FLOW = """
version: 1
name: numbers
sources: {n: {type: files, path: data, format: json, schema: "id BIGINT, g STRING"}}
steps:
  some: {from: n, filter: id % 2 = 0}
  more: {from: some, python: "steps:double"}
  sorted: {from: more, route: {low: id < 1000, otherwise: high}}
sinks:
  low: {from: sorted.low, type: files, path: out/low, format: json}
  high: {from: sorted.high, type: files, path: out/high, format: json}
"""
STEPS = """
def double(row):
    return row | {"id": row["id"] * 2}
"""
CUT = "tiers: {a: {steps: [some]}, b: {steps: [more, sorted]}, c: {steps: [low, high]}}\n"
OTHERWISE = "tiers: {a: {steps: [some, more]}, b: {steps: [sorted, low]}, c: {steps: [high]}}\n"


MOVER = """
import os
import sys
from contextlib import ExitStack
from pathlib import Path
from scribengin.core import faults
from scribengin.local.move_queries import migrate
from scribengin.local.prepare import prepare
from scribengin.plan.sql.parse import parse_expression
from scribengin.state.lease import take_lease

parse_expression("id > 0")  # loads what reads SQL

def move(flow):
    prepared = prepare(Path(flow), state=None)
    with ExitStack() as stack:
        migrate(prepared, {tier.plan.tier: stack.enter_context(take_lease(tier.folder)) for tier in prepared.tiers})

for line in sys.stdin:
    fault, flow = line.rstrip().split("\t")
    child = os.fork()
    if not child:
        faults.arm(fault)
        try:
            move(flow)
            os._exit(0)
        except BaseException:
            sys.excepthook(*sys.exc_info())
            os._exit(1)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
"""what a run does before Spark, in a process of its own that is forked from one that has loaded all"""


class Mover:
    """Moves flows, each in a process of its own, which may be struck."""

    def __init__(self, process: subprocess.Popen[str], said: Path) -> None:
        self._process, self._said = process, said

    def move(self, flow: Path, fault: str) -> int:
        """The exit status; that of a process that was killed is -9."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{fault}\t{flow}\n")
        self._process.stdin.flush()
        status = int(self._process.stdout.readline())
        assert status in (0, -signal.SIGKILL), self._said.read_text()
        return status


@pytest.fixture(scope="module")
def mover(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mover]:
    said = tmp_path_factory.mktemp("mover") / "said"
    with (
        said.open("wb") as errors,
        subprocess.Popen([sys.executable, "-c", MOVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True) as process,
    ):
        yield Mover(process, said)
        assert process.stdin is not None
        process.stdin.close()


class Numbers:
    """A folder with the flow; what is written into it, and what must come out."""

    def __init__(self, folder: FlowFolder, mover: Mover) -> None:
        self.folder, self.mover = folder.steps(STEPS), mover
        self.written: list[int] = []

    def cut(self, tiers: str, flow: str = FLOW) -> Numbers:
        self.folder.flow(flow + tiers)
        return self

    def more(self) -> Numbers:
        begin = len(self.written) // 2
        ids = [*range(begin, begin + 20), *range(5000 + begin, 5000 + begin + 20)]
        self.written += ids
        self.folder.data(f"data/{begin:06d}.jsonl", [{"id": id_, "g": "x"} for id_ in ids])
        return self

    def run(self, **settings: Any) -> None:
        result = self.folder.run(**settings)
        assert result.state == "finished", result.problems
        assert result.balanced, result.violations

    def move(self, fault: str) -> int:
        """Start a run's move in a process of its own, which is struck; its exit status."""
        return self.mover.move(self.folder.path / "flow.yaml", fault)

    def killed_run(self, point: str) -> int:
        """A run in a process of its own, struck at the first pass of that point; its exit status."""
        command = [sys.executable, "-m", "scribengin.cli", "run", str(self.folder.path / "flow.yaml"), "--once"]
        struck = os.environ | {faults.VARIABLE: f"{point}:die"}
        return subprocess.run(command, env=struck, capture_output=True, check=False, timeout=300).returncode

    def check(self) -> None:
        """Each record once in its sink, the ledger and the outputs in accord, over all that was left behind."""
        out = {name: sorted(row["id"] for row in self.folder.read(f"out/{name}")) for name in ("low", "high")}
        expected = sorted(id_ * 2 for id_ in self.written if id_ % 2 == 0)
        assert out["low"] == [id_ for id_ in expected if id_ < 1000]
        assert out["high"] == [id_ for id_ in expected if id_ >= 1000]
        audit = audit_flow(prepare(self.folder.path / "flow.yaml", state=None))
        assert audit.balanced, [violation for report in audit.reports for violation in report.violations]
        rows = {sink.sink: 0 for report in audit.reports for sink in report.sinks}
        for report in audit.reports:
            for sink in report.sinks:
                rows[sink.sink] += sink.found
        assert (rows["low"], rows["high"]) == (len(out["low"]), len(out["high"]))

    def fates(self) -> dict[str, str]:
        """Query → fate, as `plan` tells it."""
        changes = planned_changes(prepare(self.folder.path / "flow.yaml", state=None))
        return {change.label: change.fate for change in changes.queries}

    def says(self) -> dict[str, str]:
        """Query or channel → what `plan` says, remedy behind it."""
        changes = planned_changes(prepare(self.folder.path / "flow.yaml", state=None))
        return {each.label: f"{each.fate}: {each.says}; {each.remedy}" for each in (*changes.queries, *changes.channels)}


@pytest.fixture
def numbers(folder: FlowFolder, mover: Mover) -> Numbers:
    return Numbers(folder, mover)


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "cuts",
    [(CUT, OTHERWISE, ""), pytest.param((CUT, CUT, OTHERWISE, "", "", OTHERWISE, CUT), marks=pytest.mark.long)],
    ids=["each way", "and back"],
)
def test_a_flow_is_cut_cut_otherwise_fused_and_cut_again_and_every_record_comes_out_once(numbers: Numbers, cuts: tuple[str, ...]) -> None:
    numbers.cut("").more().run()
    numbers.more().run()
    fates = numbers.cut(CUT).fates()
    assert {name: fates[name] for name in ("a.some_to_b", "c.low", "c.high", "low", "high")} == {
        "a.some_to_b": "kept",
        "c.low": "kept",
        "c.high": "kept",
        "low": "gone",
        "high": "gone",
    }
    for tiers in cuts:
        numbers.cut(tiers).more().run()
        numbers.check()
        assert set(numbers.fates().values()) == {"unchanged"}, "; ".join(f"{k}={v}" for k, v in numbers.says().items())


@pytest.mark.timeout(900)
def test_a_move_that_is_killed_between_any_two_of_its_steps_is_completed_by_the_next_start(numbers: Numbers) -> None:
    numbers.cut("").more().run()
    for tiers in (CUT, OTHERWISE, ""):
        numbers.cut(tiers).more()
        for point in faults.MOVE_POINTS:
            assert numbers.move(f"{point}:die") == -signal.SIGKILL, f"{point} is never reached"
            if point != "move.recovered":
                with pytest.raises(Refused, match="was interrupted"):
                    numbers.fates()
        numbers.run()
        numbers.check()


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "point",
    [
        "move.planned",
        pytest.param("move.copied@2", marks=pytest.mark.long),
        "move.begun@2",
        pytest.param("move.adopted@3", marks=pytest.mark.long),
        pytest.param("move.marked", marks=pytest.mark.long),
    ],
)
def test_a_flow_that_is_cut_otherwise_while_a_move_is_cut_short_goes_on_from_there(numbers: Numbers, point: str) -> None:
    numbers.cut("").more().run()
    assert numbers.cut(CUT).more().move(f"{point}:die") == -signal.SIGKILL
    numbers.cut(OTHERWISE).run()
    numbers.check()


@pytest.mark.timeout(600)
def test_what_was_asked_for_just_before_a_move_that_is_killed_before_it_looks_is_not_left_behind(numbers: Numbers) -> None:
    numbers.folder.steps(STEPS.replace("return", "assert row['id'] != 4\n    return"))
    numbers.cut("").more().run()
    assert numbers.cut(CUT).move("move.noted:die") == -signal.SIGKILL
    journal = Journal(numbers.folder.path / ".scribengin", "numbers")
    written = journal.file.read_bytes()
    numbers.cut("")
    journal.remove()  # who asks has looked before it was written, and writes behind it
    assert replay(prepare(numbers.folder.path / "flow.yaml", state=None), Which()).asked > 0
    journal.file.write_bytes(written)
    numbers.cut(CUT)
    with pytest.raises(Refused, match="to be replayed"):
        numbers.run()
    assert not journal.there
    numbers.cut("").run()
    numbers.cut(CUT).run()
    left = [folder for tier in tiers_with_state(numbers.folder.path / ".scribengin", "numbers") for folder in tier.queries()]
    assert [letters_waiting(folder) for folder in left] == [0] * len(left)
    assert any(Replays(folder.replays).done() for folder in left)


def test_two_runs_of_different_cuts_do_not_move_under_one_another(numbers: Numbers) -> None:
    numbers.cut("").more().run()
    numbers.cut(CUT)
    with take_lease(StateFolder(numbers.folder.path / ".scribengin", "numbers", "main")), pytest.raises(Refused, match="already running"):
        numbers.run()
    assert not Journal(numbers.folder.path / ".scribengin", "numbers").there
    numbers.run()
    numbers.check()


@pytest.mark.timeout(600)
def test_rows_that_wait_between_two_tiers_are_never_left_behind(numbers: Numbers) -> None:
    numbers.cut(CUT).more().run()
    numbers.more().run(tier="a")
    numbers.cut("")
    assert '20 rows in channel "some_to_b" have not been read by "b.to_c"' in numbers.says()["low"]
    with pytest.raises(Refused, match="have not been read") as refused:
        numbers.run()
    assert "--once" in refused.value.remedy
    numbers.cut(CUT).run()
    numbers.check()
    numbers.cut("").more().run()
    numbers.check()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("cuts", [(CUT,), pytest.param((CUT, "", CUT), marks=pytest.mark.long)], ids=["once", "and back"])
def test_a_flow_that_was_reset_begins_anew_however_it_is_cut_and_its_old_channels_are_empty(
    numbers: Numbers, cuts: tuple[str, ...]
) -> None:
    flow = str(numbers.folder.path / "flow.yaml")
    numbers.cut("").more().run()
    numbers.cut(CUT).more().run()
    numbers.cut("").run()
    assert CliRunner().invoke(reset, [flow, "--outputs", "--yes"]).exit_code == 0
    assert set(numbers.cut(CUT).fates().values()) == {"new"}
    for tiers in cuts:
        numbers.cut(tiers).more().run()
        numbers.check()


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "point",
    [
        "decide.after",
        pytest.param("decide.before", marks=pytest.mark.long),
        pytest.param("publish.record.after", marks=pytest.mark.long),
    ],
)
def test_what_a_killed_run_has_decided_or_only_begun_is_moved_too(numbers: Numbers, point: str) -> None:
    one_query = re.sub(r"(out/\w+, format: json)", r"\1, together: q", FLOW)
    numbers.cut("", one_query).more().run()
    assert numbers.more().killed_run(point) == -signal.SIGKILL
    numbers.cut(CUT, one_query)
    assert "refused" not in numbers.fates().values()
    numbers.more().run()
    numbers.check()


@pytest.mark.timeout(600)
def test_queries_that_have_not_read_the_same_are_not_moved_into_one(numbers: Numbers) -> None:
    numbers.cut("").more().run()
    passed_over = [str(numbers.more().folder.path / "flow.yaml"), "n", "end", "--query", "high", "--yes"]
    assert CliRunner().invoke(set_offset, passed_over).exit_code == 0
    numbers.run()
    with pytest.raises(Refused, match="have read n to different positions"):
        numbers.cut(CUT).run()


ONE_BY_ONE = FLOW.replace("path: data,", "path: data, max_files: 1,")
LIMITED = """edges:
  some -> more: {capacity: {rows: 50}, high_water: {rows: 30}, low_water: {rows: 10}}
"""
FED = "tiers: {a: {steps: [some]}, b: {steps: [more, sorted]}, c: {steps: [low, high]}}\n" + LIMITED
FED_ELSEWHERE = "tiers: {other: {steps: [some]}, b: {steps: [more, sorted]}, c: {steps: [low, high]}}\n" + LIMITED


def waiting(numbers: Numbers) -> int:
    standing = read_standing(prepare(numbers.folder.path / "flow.yaml", state=None))
    (edge,) = [edge for edge in standing["edges"] if edge["channel"] == "some_to_b"]
    return int(edge["waiting"]["rows"])


@pytest.mark.timeout(900)
def test_what_a_feeder_has_put_into_a_channel_waits_there_when_the_feeder_alone_is_moved(numbers: Numbers) -> None:
    numbers.cut(FED, ONE_BY_ONE).more().run(tier="a")
    numbers.more().run(tier="a")
    assert waiting(numbers) == 40
    numbers.cut(FED_ELSEWHERE, ONE_BY_ONE)
    views: list[RunView] = []
    stop = threading.Event()

    def watch(view: RunView) -> None:
        views.append(view)
        if any(query.state == "paused" for query in view.queries):
            stop.set()

    for _ in range(2):
        numbers.more()
    result = numbers.folder.run(watch, tier="other", stop=stop)
    assert result.state == "stopped"
    gates = [gate for view in views for gate in view.gates if gate.id == "some_to_b"]
    assert gates[0].rows == 40
    assert max(gate.rows for gate in gates) == 60, "a file is taken whole, and the one behind it waits"
    assert any(gate.paused for gate in gates)
    assert any("rows wait" in query.message for view in views for query in view.queries)
    numbers.run()
    numbers.check()
    assert waiting(numbers) == 0


LONGER = FLOW.replace("  sorted: {from: more,", "  whole: {from: more, filter: id >= 0}\n  sorted: {from: whole,")
assert LONGER != FLOW
THREE = "tiers: {a: {steps: [some]}, b: {steps: [more]}, c: {steps: [sorted, low, high]}}\n"
BETWEEN = "tiers: {a: {steps: [some]}, b: {steps: [more]}, d: {steps: [whole]}, c: {steps: [sorted, low, high]}}\n"
BEHIND = "tiers: {a: {steps: [some]}, b: {steps: [more, whole]}, c: {steps: [sorted, low, high]}}\n"
BEFORE = "tiers: {a: {steps: [some]}, d: {steps: [more]}, b: {steps: [whole]}, c: {steps: [sorted, low, high]}}\n"
MERGED = "tiers: {a: {steps: [some]}, b: {steps: [more, whole, sorted, low, high]}}\n"


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "cuts",
    [
        ((LONGER, BETWEEN), (LONGER, BEHIND), (FLOW, THREE)),
        pytest.param(((LONGER, BEFORE), (LONGER, MERGED), (LONGER, BETWEEN), (FLOW, THREE), (LONGER, BETWEEN)), marks=pytest.mark.long),
    ],
    ids=["between and out", "before, merged and again"],
)
def test_a_tier_is_put_between_two_others_merged_and_taken_out_and_every_record_comes_out_once(
    numbers: Numbers, cuts: tuple[tuple[str, str], ...]
) -> None:
    numbers.cut(THREE).more().run()
    for flow, tiers in cuts:
        numbers.cut(tiers, flow).more()
        for point in faults.MOVE_POINTS:
            assert numbers.move(f"{point}:die") == -signal.SIGKILL, f"{point} is never reached"
        numbers.run()
        numbers.check()
        assert set(numbers.fates().values()) == {"unchanged"}, "; ".join(f"{k}={v}" for k, v in numbers.says().items())


@pytest.mark.timeout(600)
def test_a_tier_is_put_between_two_others_when_what_waits_behind_its_place_is_read_whatever_waits_before_it(numbers: Numbers) -> None:
    numbers.cut(THREE).more().run()
    numbers.more().run(tier="a")
    numbers.run(tier="b")
    numbers.more().run(tier="a")
    says = numbers.cut(BETWEEN, LONGER).says()
    assert '20 rows in channel "more_to_c" have not been read by' in says["b.more_to_d"]
    with pytest.raises(Refused, match="have not been read"):
        numbers.run()
    numbers.cut(THREE).run(tier="c")
    assert "refused" not in numbers.cut(BETWEEN, LONGER).fates().values()
    numbers.run()
    numbers.check()


WINDOWS = """
version: 1
name: windows
sources: {n: {type: files, path: data, format: json, schema: "id BIGINT, ts TIMESTAMP", watermark: ts 1s}}
steps:
  some: {from: n, filter: id >= 0}
  per: {from: some, aggregate: {by: [], window: {time: ts, size: 1h}, columns: {n: count(*)}}}
  told: {from: per, select: {n: n, window_start: window_start}}
sinks: {kept: {from: told, type: files, path: out, format: json}}
"""
COUNTED = "tiers: {a: {steps: [some]}, b: {steps: [per, told, kept]}}\n"
RENAMED = "tiers: {a: {steps: [some]}, other: {steps: [per, told, kept]}}\n"
JOINED = "tiers: {a: {steps: [some]}, third: {steps: [per, told, kept]}}\n"
CUT_BEHIND = "tiers: {a: {steps: [some]}, other: {steps: [per]}, c: {steps: [told, kept]}}\n"
CUT_LATER = "tiers: {a: {steps: [some]}, other: {steps: [per, told]}, c: {steps: [kept]}}\n"


def hour(folder: FlowFolder, number: int, hour: int, rows: int) -> None:
    """A file with so many rows of that hour."""
    ids = range(number * 1000, number * 1000 + rows)
    folder.data(f"data/{number:04d}.jsonl", [{"id": id_, "ts": f"2026-01-01T{hour:02d}:{id_ % 60:02d}:00Z"} for id_ in ids])


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "cuts",
    [(CUT_BEHIND,), pytest.param((RENAMED, CUT_BEHIND, CUT_LATER, JOINED), marks=pytest.mark.long)],
    ids=["cut behind", "renamed, cut behind, later, and merged"],
)
def test_a_step_with_state_goes_on_with_it_in_another_tier_wherever_the_move_is_killed(
    folder: FlowFolder, mover: Mover, cuts: tuple[str, ...]
) -> None:
    def ran(tiers: str) -> None:
        result = folder.flow(WINDOWS + tiers).run()
        assert result.state == "finished", result.problems
        assert result.balanced, result.violations

    hour(folder, 0, 10, 7)
    ran(COUNTED)
    for number, tiers in enumerate(cuts, 1):
        hour(folder, number, 10, 5)
        path = folder.flow(WINDOWS + tiers).path / "flow.yaml"
        fates = {change.label: change for change in planned_changes(prepare(path, state=None)).queries}
        assert not any(change.fate == "refused" for change in fates.values())
        assert sum("with the state of" in change.says for change in fates.values()) == 1
        for point in faults.MOVE_POINTS:
            assert mover.move(path, f"{point}:die") == -signal.SIGKILL, f"{point} is never reached"
        ran(tiers)
        audit = audit_flow(prepare(path, state=None))
        assert audit.balanced, [violation for report in audit.reports for violation in report.violations]
    hour(folder, 50, 20, 3)
    for number in (51, 52):  # a Batch moves the watermark, and one more closes what it has passed
        hour(folder, number, 23, 1)
        ran(cuts[-1])
    counted = {row["window_start"][11:13]: row["n"] for row in folder.read("out")}
    assert counted == {"10": 7 + 5 * len(cuts), "20": 3}
    audit = audit_flow(prepare(folder.path / "flow.yaml", state=None))
    assert audit.balanced, [violation for report in audit.reports for violation in report.violations]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("point", ["commit.before", pytest.param("decide.before", marks=pytest.mark.long)])
def test_a_step_with_state_takes_in_once_what_was_decided_and_not_noted_by_spark_before_it_moved(folder: FlowFolder, point: str) -> None:
    path = folder.flow(WINDOWS + "tiers: {a: {steps: [some, per, told, kept]}}\n").path / "flow.yaml"
    hour(folder, 0, 10, 7)
    assert folder.run().state == "finished"
    hour(folder, 1, 10, 5)
    struck = os.environ | {faults.VARIABLE: f"{point}:die"}
    command = [sys.executable, "-m", "scribengin.cli", "run", str(path), "--once"]
    assert subprocess.run(command, env=struck, capture_output=True, check=False, timeout=300).returncode == -signal.SIGKILL
    folder.flow(WINDOWS + "tiers: {b: {steps: [some, per]}, c: {steps: [told, kept]}}\n")
    hour(folder, 50, 20, 3)
    for number in (51, 52):
        hour(folder, number, 23, 1)
        result = folder.run()
        assert (result.state, result.balanced) == ("finished", True), (result.problems, result.violations)
    assert {row["window_start"][11:13]: row["n"] for row in folder.read("out")} == {"10": 12, "20": 3}
    audit = audit_flow(prepare(path, state=None))
    assert audit.balanced, [violation for report in audit.reports for violation in report.violations]
