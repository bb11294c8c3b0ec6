"""A flow that is cut gives what the whole one gives: random flows, random cuts. `make cuts ARGS="--examples 300"` tries more."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st

from scribengin.testing.cuts.flows import make_case
from scribengin.testing.cuts.trial import compare, refusals, write_case

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(1200)


@given(st.integers(0, 2**32))
@settings(
    max_examples=12,
    # a smaller seed is no simpler flow
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.function_scoped_fixture],
)
def test_a_cut_flow_gives_what_the_whole_one_gives(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    case = make_case(random.Random(seed))
    folder = tmp_path_factory.mktemp("cuts")
    write_case(case, folder)
    assume(not refusals(folder))
    found = compare(case, folder, spark)
    assert not found.wrong, f"python -m scribengin.testing.cuts --examples 1 --seed {seed}: " + "\n".join(found.wrong)
