"""`--shuffle 7`: the tests in a random order, which that number gives again. Those of a file stay together, for they share fixtures."""

from __future__ import annotations

import random
from itertools import groupby

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--shuffle", type=int, metavar="SEED", help="the tests in the random order of this number")


def shuffled(items: list[pytest.Item], seed: int) -> list[pytest.Item]:
    dice = random.Random(seed)
    files = [list(each) for _, each in groupby(sorted(items, key=lambda item: item.nodeid), key=lambda item: item.path)]
    dice.shuffle(files)
    for each in files:
        dice.shuffle(each)
    return [item for each in files for item in each]


@pytest.hookimpl(trylast=True, wrapper=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> object:
    """After the order that saves time."""
    answer = yield
    seed = config.getoption("--shuffle")
    if seed is not None:
        items[:] = shuffled(items, seed)
    return answer
