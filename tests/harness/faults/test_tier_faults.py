"""The campaign over flows that are cut: a slice of `make faults ONLY=tiers`."""

import pytest

from harness.faults.cells import AIMS_OF, all_cells
from harness.faults.lives import run_life
from harness.faults.outcomes import Aim, Life
from harness.faults.tier_flows import CUTS, DURABILITIES, TIER_KINDS, TIER_ROUTES, TierFlow
from scribengin.core.faults import POINTS, TRANSACTION_POINTS
from scribengin.plan.validate import validate_file
from scribengin.testing.records import as_line

pytestmark = [pytest.mark.faults, pytest.mark.timeout(1800)]


@pytest.mark.parametrize("route", TIER_ROUTES)
def test_every_way_and_point_between_tiers_finds_a_flow(route):
    assert {aim for aim, _ in all_cells(route)} == set(AIMS_OF[route])
    kills = {aim.point for aim in AIMS_OF[route] if aim.way == "kill"}
    if route not in DURABILITIES:
        assert kills == {*POINTS, *(TRANSACTION_POINTS if route == "tiers-kafka" else ())}


@pytest.mark.parametrize("kind", TIER_KINDS)
@pytest.mark.parametrize("edited", [False, True])
@pytest.mark.parametrize("cut", range(CUTS))
def test_the_flows_are_right_however_they_are_cut_and_edited(tmp_path, kind, edited, cut):
    flow = TierFlow(tmp_path, kind, "json", partitioned=False, route="tiers-folder", cut=cut)
    flow.write()
    flow.grow(2)
    flow.flow.write_text(flow.text(edited=edited))
    found, problems = validate_file(flow.flow, {}, execute=True)
    assert [problem.message for problem in problems if problem.severity == "error"] == []
    assert (tuple(found.tiers) or ("main",)) == flow.tiers
    assert flow.late == 0


def test_the_judge_asks_for_every_record_and_for_no_order(tmp_path):
    flow = TierFlow(tmp_path, "tail", "json", partitioned=False, route="tiers-folder")
    flow.write()
    flow.grow(1)
    rows = [row for part in range(flow.parts) for row in flow._part(part)]
    out = flow.out / "kept"
    out.mkdir(parents=True)
    written = out / "part-0.jsonl"
    written.write_text("".join(as_line(row) + "\n" for row in reversed(rows)))
    assert not flow.judge()
    written.write_text("".join(as_line(row) + "\n" for row in [*rows[1:], rows[1]]))
    assert set(flow.judge().kinds()) == {"lost", "doubled"}


@pytest.mark.long
def test_drivers_of_three_tiers_killed_at_a_publication_and_in_its_recovery_lose_and_double_nothing(tmp_path):
    aims = (Aim("kill", "decide.after"), Aim("recovery", "publish.renamed"))
    outcome = run_life(Life("filter", "tiers-folder", False, aims), 1, tmp_path / "life", limit_s=400)
    assert outcome.verdict == "passed", outcome
    assert all(outcome.reached), outcome
    assert outcome.looks > 0
