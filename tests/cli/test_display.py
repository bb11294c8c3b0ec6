"""What a run shows: plain lines, the live drawing, the summary."""

import io
from dataclasses import replace

import pytest
from rich.console import Console

from scribengin.cli.display import Plain, plain_line
from scribengin.cli.live import LiveDisplay, draw
from scribengin.cli.summary import _COLUMNS, _MEANINGS, show_summary
from scribengin.local.contract import EndView, QueryResult, QueryView, RunResult, RunView, SinkResult
from scribengin.local.ledger import LedgerLine, plain_lines
from scribengin.state.contract import Counts
from scribengin.watching.wording import lag_text

KEPT = QueryView(
    "kept", "running", batches=3, batch=3, seconds=12.0, rows_in=612_000, rows_out=5402, filtered=606_570, dead=28, rows_per_s=412_000.4,
    phases_s={"plan": 0.01, "process": 0.71, "publish": 0.2}, lag_files=3, lag_bytes=54 * 2**20, done=0.62, eta_s=4.0,
    watermark="2026-01-01T12:10:00Z",
)  # fmt: skip
COUNTS = QueryView("counts", "waiting")
VIEW = RunView("tweets", "running", 12.0, (KEPT, COUNTS))


class Clock:
    def __init__(self):
        self.seconds = 0.0

    def __call__(self):
        return self.seconds


@pytest.fixture
def clock():
    return Clock()


def lines(capfd):
    return capfd.readouterr().err.splitlines()


def test_a_plain_line_says_everything_that_is_known():
    assert plain_line(VIEW) == (
        "tweets running; kept: 412,000 rows/s, in 612,000, out 5,402, dead 28, lag 3 files 54.0 MiB, 62%, 4.0s left, "
        "watermark 2026-01-01T12:10:00Z; counts: waiting, in 0, out 0"
    )


def test_the_batch_under_way_is_shown_before_any_is_through():
    view = QueryView("kept", "running", batch=0, lag_bytes=2**20, done=0.25, tasks=(2, 8))
    assert "Batch 0: 2 of 8 tasks, 25%" in plain_line(replace(VIEW, queries=(view,)))
    assert "Batch 0: 2 of 8 tasks" in "\n".join(rendered(replace(VIEW, queries=(view,)), height=40))


def test_the_drawing_says_how_long_a_batch_has_been_under_way_and_a_log_does_not():
    view = QueryView("kept", "running", batch=0, tasks=(0, 1), batch_s=6.2)
    assert "Batch 0: 0 of 1 task, for 6.2s" in "\n".join(rendered(replace(VIEW, queries=(view,)), height=40))
    assert "6.2s" not in plain_line(replace(VIEW, queries=(view,)))


def test_a_batch_of_which_nothing_moves_is_called_slow_and_not_failed():
    view = QueryView("kept", "running", batch=17, tasks=(2, 8), still_s=45.0)
    assert "Batch 17: 2 of 8 tasks, slow: no progress for 30s" in plain_line(replace(VIEW, queries=(view,)))
    publishing = QueryView("kept", "running", batches=3, still_s=100.0)
    line = "Batch 3: slow: no progress for 1m30s"
    assert line in plain_line(replace(VIEW, queries=(publishing,)))
    assert line in "\n".join(rendered(replace(VIEW, queries=(publishing,)), height=40))
    assert "slow" not in plain_line(replace(VIEW, queries=(replace(view, still_s=29.0),)))


def test_plain_lines_come_at_most_once_a_second_and_only_when_something_changed(capfd, clock):
    display = Plain(now=clock)
    display.show(VIEW)
    display.show(replace(VIEW, queries=(COUNTS,)))
    assert len(lines(capfd)) == 1
    clock.seconds = 1.1
    display.show(replace(VIEW, seconds=13.0))
    assert lines(capfd) == []
    display.show(replace(VIEW, queries=(COUNTS,)))
    assert len(lines(capfd)) == 1


def test_the_end_is_always_shown_and_notices_are_never_lost(capfd, clock):
    display = Plain(now=clock)
    display.show(VIEW)
    display.show(replace(VIEW, phase="ended", notices=("one", "two")))
    shown = lines(capfd)
    assert shown[1].strip() == "one"
    assert shown[2].strip() == "two"
    assert "tweets ended" in shown[3]
    quiet = Plain(quiet=True, now=clock)
    quiet.show(replace(VIEW, notices=("three",)))
    assert [line.strip() for line in lines(capfd)] == ["three"]


def rendered(view, *, height, width=110):
    console = Console(file=io.StringIO(), width=width, force_terminal=False, color_system=None)
    console.print(draw(view, height=height))
    return console.file.getvalue().splitlines()


def test_a_rate_of_the_first_seconds_is_not_shown():
    young = replace(VIEW, queries=(replace(KEPT, seconds=1.0),))
    assert "rows/s" not in plain_line(young)
    assert "rows/s" not in "\n".join(rendered(young, height=40))


def test_the_live_drawing_fits_the_terminal():
    assert len(rendered(VIEW, height=40)) > 6
    many = RunView("tweets", "running", 1.0, tuple(replace(KEPT, name=f"query_{n}") for n in range(10)))
    assert len(rendered(many, height=12)) == 11
    assert all(len(line) <= 60 for line in rendered(VIEW, height=40, width=60))


def test_the_live_drawing_shows_bar_rate_time_lag_phases_and_watermark():
    text = "\n".join(rendered(VIEW, height=40))
    for part in ("62%", "━", "412,000 rows/s", "4.0s left", "54.0 MiB", "process 0.7s", "watermark 2026-01-01T12:10:00Z", "28", "Ctrl-C"):
        assert part in text
    assert "Ctrl-C" not in "\n".join(rendered(replace(VIEW, phase="stopping"), height=40))


@pytest.mark.parametrize("state", ["starting", "running", "waiting", "recovering", "stopping", "stopped", "finished", "failed"])
def test_every_state_of_a_query_can_be_drawn(state):
    view = RunView("f", "running", 1.0, (QueryView("kept", state, message="because"),))
    assert any("because" in line for line in rendered(view, height=40))
    assert state in plain_line(view) or state == "running"


def test_live_keeps_notices_above_the_drawing():
    console = Console(file=io.StringIO(), width=100, height=40, force_terminal=True, color_system=None)
    display = LiveDisplay(console)
    display.show(replace(VIEW, notices=("data/_tmp is skipped",)))
    display.close()
    text = console.file.getvalue()
    assert text.index("data/_tmp is skipped") < text.index("412,000 rows/s")


def test_lag_names_only_what_waits():
    assert lag_text(replace(KEPT, lag_files=1, lag_bytes=None)) == "1 file"
    assert lag_text(replace(KEPT, lag_files=0, lag_bytes=0, lag_rows=7, lag_s=90.0)) == "7 rows 1m30s"


def test_what_was_lost_is_shown_with_what_is_known_of_it():
    view = replace(VIEW, queries=(replace(KEPT, lost=85_000, lost_unknown=1),))
    told = "lost up to 85,000, and 1 time an unknown number"
    assert told in plain_line(view)
    assert told in "\n".join(rendered(view, height=40, width=140))
    assert "lost" not in plain_line(VIEW)
    query = result().queries[0]
    lossy = result(queries=(replace(query, nodes={"tweets": Counts(100, 98, dead=2, lost_unknown=2)}),))
    assert "records of tweets that query kept skipped: 2 times an unknown number." in " ".join(summary(lossy).split())
    assert "Gone" not in summary(result())


def test_the_time_to_catch_up_is_shown_beside_the_lag():
    endless = replace(KEPT, done=None, eta_s=None, lag_files=0, lag_bytes=0, lag_rows=24_000, lag_s=12.0)
    level, behind = replace(endless, catch_up_s=40.0), replace(endless, falls_behind=True)
    assert "lag 24,000 rows 12s, caught up in 40s" in plain_line(replace(VIEW, queries=(level,)))
    assert "lag 24,000 rows 12s   caught up in 40s" in "\n".join(rendered(replace(VIEW, queries=(level,)), height=40))
    assert "never caught up at this rate" in plain_line(replace(VIEW, queries=(behind,)))
    assert "never caught up at this rate" in "\n".join(rendered(replace(VIEW, queries=(behind,)), height=40))
    assert "caught up" not in plain_line(replace(VIEW, queries=(endless,)))
    # a bar that tells what is left says it already, unless it never ends
    assert "caught up" not in plain_line(replace(VIEW, queries=(replace(KEPT, catch_up_s=4.0),)))
    assert "never caught up" in plain_line(replace(VIEW, queries=(replace(KEPT, falls_behind=True),)))


def test_the_summary_and_the_answer_say_what_still_waits():
    view = replace(COUNTS, state="stopped", lag_rows=24_000, lag_s=12.3456, falls_behind=True)
    stopped = result(queries=(replace(result().queries[0], view=view),))
    assert "lag 24,000 rows 12s, never caught up at this rate" in summary(stopped)
    assert "lag" not in summary(result())
    (query,) = stopped.as_json()["queries"]
    assert query["lag"] == {
        "rows": 24_000, "files": None, "bytes": None, "seconds": 12.346, "catch_up_s": None, "falls_behind": True,
    }  # fmt: skip


def result(**changes):
    nodes = {"tweets": Counts(100, 98, dead=2), "tagged": Counts(98, 10, 88), "kept": Counts(10, 10)}
    here = {"tweets": Counts(60, 59, dead=1), "tagged": Counts(59, 6, 53), "kept": Counts(6, 6)}
    view = QueryView("kept", "finished", batches=1, sinks={"kept": EndView(6)})
    query = QueryResult(
        "kept", "finished", 2, 4.0, Counts(100, 10, 88, 2), Counts(60, 6, 53, 1), nodes, (SinkResult("kept", 10, "out/kept"),), view=view,
        lines=plain_lines(nodes), lines_of_run=plain_lines(here),
    )  # fmt: skip
    return replace(RunResult("tweets", "finished", ".scribengin", (query,), True), **changes)


def summary(run):
    console = Console(file=io.StringIO(), width=110, color_system=None, highlight=False)
    show_summary(run, "scribengin dead-letter list flow.yaml", console)
    return console.file.getvalue()


def test_the_summary_shows_rows_sinks_and_a_ledger_without_empty_columns():
    text = summary(result())
    assert "kept  finished  60 rows in 1 Batch, 4.0s\n" in text, "no rate of a few seconds"
    assert "all runs: 100 rows in 2 Batches" in text
    assert "6 rows to out/kept (10 with earlier runs)" in text
    assert "2 dead letters, 1 of this run; list them" in text
    assert "The ledger balances" in text
    header = next(line for line in text.splitlines() if "Query" in line)
    assert header.split() == ["Query", "node", "in", "out", "filtered", "dead"]
    assert text.index("This run") < text.index("tweets  60") < text.index("All runs") < text.index("tweets  100")
    assert not [line for line in text.splitlines() if line != line.rstrip()]


def test_what_columns_mean_is_said_once_and_of_both_tables():
    (query,) = result().queries
    here = (LedgerLine("hourly", 3, 4, made=2, dead=1, held=1),)
    text = summary(result(queries=(replace(query, lines_of_run=here),)))
    assert text.count("each line:") == 1
    assert "each line: in + made = out + filtered + dead" in text
    assert "made: " in text


def test_a_run_that_found_nothing_new_says_so_and_shows_what_all_runs_did():
    (query,) = result().queries
    idle = replace(query, this_run=Counts(), view=QueryView("kept", "finished", sinks={"kept": EndView(0)}), lines_of_run=())
    text = summary(result(queries=(idle,)))
    assert "kept  finished  nothing new, 4.0s" in text
    assert "0 rows to out/kept (10 with earlier runs)" in text
    assert "2 dead letters, none of this run" in text
    assert "This run" not in text
    assert "tweets  100" in text


def test_a_first_run_has_one_table_and_a_failed_one_does_not_claim_to_balance():
    (query,) = result().queries
    first = replace(query, batches=1, this_run=query.rows, view=QueryView("kept", "finished", batches=1), lines_of_run=query.lines)
    text = summary(result(queries=(first,)))
    assert "All runs" not in text
    assert text.count("tweets  100") == 1
    failed = replace(query, state="failed", batches=0, view=QueryView("kept", "failed"), lines=(), lines_of_run=(), rows=Counts())
    assert "balances" not in summary(result(state="failed", queries=(failed,)))


def test_each_line_of_the_ledger_adds_up_and_a_lookup_is_no_input():
    lines = (
        LedgerLine("events", 330, 330),
        LedgerLine("countries", 6, 5, dead=1, lookup=True),
        LedgerLine("hourly", 299, 30, folded=267, late=2, held=3),
    )
    text = summary(result(queries=(replace(result().queries[0], lines=lines, lines_of_run=lines, batches=1),)))
    assert "each line: in = out + folded + late" in text
    assert "folded: " in text
    assert "held: " in text
    assert "countries: lookup table of query kept, read again by each Batch: 6 rows in all," in text
    assert "which are not part of in; dead letters among them: 1" in text
    assert not any(line.split()[:1] == ["countries"] for line in text.splitlines())


def test_each_word_of_the_ledger_is_explained_where_it_occurs_in_80_columns():
    (query,) = result().queries

    def legend(*lines):
        text = summary(result(queries=(replace(query, lines=lines, lines_of_run=lines, batches=1),)))
        below = text[text.index("Query  node") : text.index("The ledger balances")].splitlines()
        assert max(map(len, below)) <= 80
        return {line.partition(":")[0] for line in below if line.partition(":")[0] in _MEANINGS}

    assert legend(LedgerLine("rows", 5, 5)) == set()
    assert legend(LedgerLine("joined", 5, 9, made=4)) == {"made"}
    assert legend(LedgerLine("hourly", 9, 2, folded=6, late=1, held=3, replayed=1)) == {"folded", "late", "held", "replayed"}
    assert set(_MEANINGS) < set(_COLUMNS)


def test_no_number_of_a_ledger_is_cut_on_a_narrow_terminal():
    lines = (LedgerLine("known+enriched+by_hour", 123_456_789, 100_000_000, filtered=23_456_789, made=0, late=0, dead=0),)
    run = result(queries=(replace(result().queries[0], lines=lines, lines_of_run=lines, batches=1),))
    console = Console(file=io.StringIO(), width=40, color_system=None, highlight=False)
    show_summary(run, "scribengin dead-letter list flow.yaml", console)
    assert all(number in console.file.getvalue() for number in ("123,456,789", "100,000,000", "23,456,789"))


def test_the_summary_of_a_failure_names_state_and_violations_and_leaves_the_error_to_the_problems():
    query = replace(result().queries[0], state="failed", error="disk full", remedy="make room")
    text = summary(result(state="failed", queries=(query,), balanced=False, violations=("kept: 1 record missing",)))
    for part in ("tweets failed", "kept  failed", "does NOT balance", "kept: 1 record missing"):
        assert part in text
    assert "disk full" not in text


def test_a_run_without_a_batch_has_no_table():
    assert "Query" not in summary(result(queries=(replace(result().queries[0], lines=(), lines_of_run=()),)))
