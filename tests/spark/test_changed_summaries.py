"""What a summary claims to count, it has counted, once: whatever the flow was changed to between two Batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from scribengin.core.errors import Refused
from scribengin.local.positions import go_back
from scribengin.local.prepare import prepare
from scribengin.local.rewind import find_rewinds
from scribengin.local.summaries import read_summaries
from scribengin.state.folder import StateFolder
from scribengin.state.lease import take_lease
from tests.spark.test_stateless_steps import ran

if TYPE_CHECKING:
    from tests.conftest import FlowFolder

SUM = "type: summary, sql: 'SELECT count(*) AS n, sum(x) AS total FROM rows'"
KEPT = "kept: {from: n, type: files, path: out, format: json, together: all}"


class Life:
    """A flow that is changed again and again; between two changes one file of one number comes."""

    def __init__(self, folder: FlowFolder) -> None:
        self.folder = folder
        self.came: list[int] = []

    def runs(self, *sinks: str, tiers: str = "", schema: str = "x BIGINT", more: int = 1) -> None:
        """Let so many numbers come, a Batch each, under a flow with these sinks."""
        source = f"{{type: files, path: data, format: json, schema: {schema}, max_files: 1}}"
        lines = "".join(f"  {line}\n" for line in sinks)
        self.folder.flow(f"version: 1\nname: f\nsources:\n  n: {source}\nsinks:\n{lines}{tiers}")
        for _ in range(more):
            number = 10 ** len(self.came)
            self.folder.data(f"data/{number}.json", [{"x": number}])
            self.came.append(number)
        ran(self.folder)

    def shows(self, sink: str = "s") -> tuple[int, Any, int, bool]:
        """How many rows it counts, their sum, since which Batch, and whether it claims to count all."""
        prepared = prepare(self.folder.path / "flow.yaml", state=None)
        (found,) = read_summaries(prepared, sink)["summaries"]
        (row,) = found["rows"]
        assert row["n"] == found["rows_in"]
        return row["n"], row["total"], found["since_batch"], found["since"] is None


@pytest.fixture
def life(folder: FlowFolder) -> Life:
    return Life(folder)


def test_one_that_was_taken_out_and_put_back_counts_from_there_on(life: Life) -> None:
    life.runs(KEPT, f"s: {{from: n, {SUM}, together: all}}", more=2)
    assert life.shows() == (2, 11, 0, True)
    life.runs(KEPT, more=2)
    life.runs(KEPT, f"s: {{from: n, {SUM}, together: all}}")
    assert life.shows() == (1, 10_000, 4, False)
    # at once, too: what was shown before is not what it says now
    life.runs(KEPT)
    life.runs(KEPT, f"s: {{from: n, {SUM}, together: all}}", more=0)
    assert life.shows() == (0, None, 6, False)


def test_one_that_commits_by_itself_has_missed_nothing(life: Life) -> None:
    life.runs(KEPT, f"s: {{from: n, {SUM}}}")
    life.runs(KEPT)
    life.runs(KEPT, f"s: {{from: n, {SUM}}}")
    assert life.shows() == (3, 111, 0, True)


def test_one_that_goes_to_another_query_and_back_counts_nothing_twice(life: Life) -> None:
    apart, beside = f"s: {{from: n, {SUM}}}", f"s: {{from: n, {SUM}, together: all}}"
    life.runs(KEPT, apart)
    life.runs(KEPT, beside)
    assert life.shows() == (1, 10, 1, False)
    life.runs(KEPT, apart)
    assert life.shows() == (3, 111, 0, True)
    life.runs(KEPT, beside)
    assert life.shows() == (1, 1000, 3, False)


def test_one_of_another_name_is_another(life: Life) -> None:
    life.runs(KEPT, f"s: {{from: n, {SUM}, together: all}}")
    life.runs(KEPT, f"t: {{from: n, {SUM}, together: all}}", f"u: {{from: n, {SUM}}}")
    assert (life.shows("t"), life.shows("u")) == ((1, 10, 1, False), (2, 11, 0, True))


def test_a_sink_of_another_type_is_refused_and_undone_it_goes_on(life: Life) -> None:
    life.runs(f"s: {{from: n, {SUM}}}")
    with pytest.raises(Refused, match='sink "s" was of type summary and is now of type files'):
        life.runs("s: {from: n, type: files, path: out, format: json}")
    life.runs(f"s: {{from: n, {SUM}}}")
    assert life.shows() == (3, 111, 0, True)


def test_a_source_whose_column_has_another_type_begins_anew(life: Life) -> None:
    life.runs(f"s: {{from: n, {SUM}}}", more=2)
    life.runs(f"s: {{from: n, {SUM}}}", schema="x DOUBLE")
    assert life.shows() == (1, 100.0, 2, False)


def test_it_goes_on_where_the_flow_is_cut_and_fused(life: Life) -> None:
    apart = f"s: {{from: n, {SUM}}}"
    cut = "tiers: {before: {steps: [BEFORE]}, behind: {steps: [BEHIND]}}\n"
    life.runs(KEPT, apart, more=2)
    behind = cut.replace("BEFORE", "n, kept").replace("BEHIND", "s")
    life.runs(KEPT, apart, tiers=behind, more=0)
    assert life.shows() == (2, 11, 0, True)
    life.runs(KEPT, apart, tiers=behind)
    assert life.shows() == (3, 111, 0, True)
    life.runs(KEPT, apart)
    assert life.shows() == (4, 1111, 0, True)
    life.runs(KEPT, apart, tiers=behind)
    assert life.shows() == (5, 11_111, 0, True)


def test_going_back_begins_anew_and_says_so(life: Life) -> None:
    life.runs(f"s: {{from: n, {SUM}}}", more=3)
    for batch, shows in ((0, (2, 110, 0, False)), (-1, (2, 110, 0, False))):
        prepared = prepare(life.folder.path / "flow.yaml", state=None)
        (back,) = find_rewinds(prepared, None, batch=batch)
        (tier,) = prepared.tiers
        with take_lease(StateFolder(prepared.root, "f")) as lease:
            go_back(tier, tier.folder.query("s"), back.starts, lease)
        ran(life.folder)
        assert life.shows() == shows
