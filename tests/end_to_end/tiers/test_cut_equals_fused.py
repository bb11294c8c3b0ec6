"""A flow that is cut gives what the whole one gives: random flows, random cuts. `make cuts ARGS="--examples 300"` tries more.

The seeds are fixed, the first that the checks admit, so that the same code passes or fails the same way wherever it is tested; `make cuts`
looks for new ones, and what it finds becomes a test of its own where the fault lay.
"""

from __future__ import annotations

import random
from itertools import count, islice
from typing import TYPE_CHECKING

import pytest

from harness.cuts.flows import make_case
from harness.cuts.trial import compare, refusals, write_case

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(1200)
FIRST_SEED = 1000


@pytest.mark.parametrize(("first", "last"), [(0, 1), pytest.param(1, 20, marks=pytest.mark.long)])
def test_a_cut_flow_gives_what_the_whole_one_gives(
    first: int, last: int, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> None:
    wrong = []
    admitted = ((seed, folder) for seed in count(FIRST_SEED) if not refusals(folder := _written(seed, tmp_path_factory)))
    for seed, folder in islice(admitted, first, last):
        found = compare(make_case(random.Random(seed)), folder, spark)
        wrong += [f"python -m harness.cuts --examples 1 --seed {seed}: {each}" for each in found.wrong]
    assert wrong == []


def _written(seed: int, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cuts")
    write_case(make_case(random.Random(seed)), folder)
    return folder
