"""What a tier gets where it runs alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from scribengin.control.submission import submission_of
from scribengin.local import session
from scribengin.local.contract import RunSettings
from scribengin.local.prepare import prepare
from scribengin.registry.records import AutoscaleSpec, TierSpec
from scribengin.spark.shared_session import LentStart

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

FLOW = """
version: 1
name: shares
sources: {n: {type: sequence, rows: 10}}
steps: {even: {from: n, filter: id % 2 = 0}, third: {from: even, filter: id % 3 = 0}}
sinks: {kept: {from: third, type: files, path: out, format: json}}
tiers:
  near: {steps: [even], resources: {cores: 1, memory: 700MiB}}
  far: {steps: [third], resources: {spark: {spark.sql.shuffle.partitions: 3, spark.locality.wait: 0s}}}
"""


@pytest.fixture
def begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    (tmp_path / "flow.yaml").write_text(FLOW)
    asked: dict[str, Any] = {}

    def begin_session(name: str, **given: Any) -> LentStart:
        asked.update(given, name=name)
        return LentStart(lambda: None)  # type: ignore[arg-type, return-value]

    monkeypatch.setattr(session, "begin_session", begin_session)

    def begin(tier: str | None, **settings: Any) -> tuple[str, str]:
        chosen = RunSettings(once=True, tier=tier, **settings)
        session.start([prepare(tmp_path / "flow.yaml", state=None, tier=tier)], chosen)
        conf.update(asked["conf"])
        return asked["master"], asked["memory"]

    conf: dict[str, str] = {}
    begin.conf = conf  # type: ignore[attr-defined]
    return begin


def test_a_tier_that_runs_alone_gets_its_cores_and_its_memory(begun: Any) -> None:
    assert begun("near") == ("local[1,3]", "700m")
    assert begun("far") == ("", "")


def test_what_the_run_is_told_comes_first(begun: Any) -> None:
    assert begun("near", master="local[4,3]", memory="1g") == ("local[4,3]", "1g")


def test_tiers_that_run_together_share_what_there_is(begun: Any) -> None:
    assert begun(None) == ("", "")


def test_its_session_has_its_settings_of_spark_and_what_the_run_is_told_over_them(begun: Any) -> None:
    begun("far", spark_conf={"spark.locality.wait": "1s"})
    assert begun.conf == {"spark.sql.shuffle.partitions": "3", "spark.locality.wait": "1s"}


def test_tiers_that_run_together_have_none_of_them(begun: Any) -> None:
    begun(None)
    assert begun.conf == {}


def test_masters_know_them_so_that_another_one_is_a_restart(tmp_path: Path) -> None:
    (tmp_path / "flow.yaml").write_text(FLOW)
    tiers = submission_of(prepare(tmp_path / "flow.yaml", state=None).plan, "0" * 64, "flow.yaml", "/").tiers
    assert (tiers["far"].spark, tiers["near"].spark) == ({"spark.sql.shuffle.partitions": "3", "spark.locality.wait": "0s"}, {})


def test_a_tier_with_autoscale_begins_with_its_fewest_executors(tmp_path: Path) -> None:
    def tiers(executors: str) -> Mapping[str, TierSpec]:
        scaled = f"far: {{autoscale: {{lag: 90s, min: 2, max: 8, mode: act}}, resources: {{cores: 2{executors}}}, steps: [third]}}\n"
        (tmp_path / "flow.yaml").write_text(FLOW.partition("  far:")[0] + f"  {scaled}")
        return submission_of(prepare(tmp_path / "flow.yaml", state=None).plan, "0" * 64, "flow.yaml", "/").tiers

    assert tiers("")["far"].autoscale == AutoscaleSpec(lag_s=90.0, min=2, max=8, mode="act")
    assert (tiers("")["far"].executors, tiers(", executors: 4")["far"].executors) == (2, 4)
    assert (tiers("")["near"].executors, tiers("")["near"].autoscale) == (1, None)


def test_masters_know_the_hosts_of_a_tier_s_group(tmp_path: Path) -> None:
    groups = "groups: {pcs: {members: [{at: a, cost: 2}, {at: b}]}}\n"
    (tmp_path / "flow.yaml").write_text(FLOW.replace("far: {steps", "far: {group: pcs, steps") + groups)
    tiers = submission_of(prepare(tmp_path / "flow.yaml", state=None).plan, "0" * 64, "flow.yaml", "/").tiers
    assert (tiers["far"].group, tiers["far"].hosts) == ("pcs", {"a": 2.0, "b": 1.0})
    assert (tiers["near"].group, tiers["near"].hosts) == ("", {})
