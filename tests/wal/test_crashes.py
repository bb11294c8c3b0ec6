"""Whatever crashes, and whenever: what was durable is there, nothing is invented, no number has two contents, and positions fit the frames."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.wal.log_model import LogModel
from tests.wal.simulated_disk import Stopped

PARTS = st.sampled_from([0.0, 0.2, 0.5, 0.8, 1.0])
SEEDS = st.integers(0, 10**6)
APPEND = st.tuples(st.just("append"), st.integers(0, 300), st.integers(1, 3), st.integers(0, 2))
ACTIONS = st.one_of(
    APPEND,
    APPEND,
    APPEND,
    st.tuples(st.just("sync"), st.booleans()),
    st.tuples(st.just("sync"), st.booleans()),
    st.tuples(st.just("read"), PARTS, st.sampled_from([1, 300, 1000])),
    st.tuples(st.just("acknowledge"), PARTS),
    st.tuples(st.just("drop"), st.sampled_from([1, 600, 1500, 5000])),
    st.tuples(st.just("crash"), st.booleans(), st.integers(0, 15), st.integers(0, 12), SEEDS),
    st.tuples(st.just("power"), SEEDS),
    st.tuples(st.just("close")),
    st.tuples(st.just("fail"), st.integers(1, 2)),
    st.tuples(st.just("fill"), st.integers(0, 400)),
    st.tuples(st.just("clear")),
)
PROFILE = settings(deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))


def run(actions: list[tuple[Any, ...]], sync: str) -> LogModel:
    model = LogModel(sync=sync)
    model.open()
    crash: tuple[Any, ...] | None = None
    for name, *arguments in actions:
        before = len(model.frames)
        try:
            match name:
                case "append":
                    model.append(*arguments)
                case "sync":
                    model.make_durable(force=arguments[0])
                case "read":
                    model.read(*arguments)
                case "acknowledge":
                    model.acknowledge(*arguments)
                case "drop":
                    model.drop(*arguments)
                case "crash":
                    crash = (arguments[0], *arguments[2:])
                    model.disk.stop_after = arguments[1]
                case "power":
                    model.crash(power=True, again=1000, seed=arguments[0], unsure=0)
                case "close":
                    model.close()
                case "fail":
                    model.disk.failing_syncs = arguments[0]
                case "fill":
                    model.disk.capacity = model.disk.used() + arguments[0]
                case "clear":
                    model.disk.capacity = None
        except Stopped:
            assert crash is not None
            model.crash(power=crash[0], again=crash[1], seed=crash[2], unsure=len(model.frames) - before)
            crash = None
    model.disk.stop_after = None
    model.crash(power=False, again=1000, seed=0, unsure=0)
    return model


@given(st.lists(ACTIONS, min_size=12, max_size=60), st.sampled_from(["each", "100ms", "500B"]))
@settings(PROFILE, max_examples=300)
def test_the_log_is_like_its_model_whatever_crashes(actions: list[tuple[Any, ...]], sync: str) -> None:
    run(actions, sync)


def story(seed: int, length: int) -> list[tuple[Any, ...]]:
    """A day of a log: it is filled, read, acknowledged, and opened again."""
    random = Random(seed)
    actions: list[tuple[Any, ...]] = []
    for at in range(length):
        actions += [("append", random.randrange(200), random.randrange(1, 4), random.randrange(3)) for _ in range(random.randrange(1, 4))]
        actions.append(("sync", random.random() < 0.7))
        actions.append(("read", 0.5, 500))
        if at % 5 == 3:
            actions.append(("acknowledge", random.random()))
        if at % 9 == 7:
            actions.append(("drop", random.randrange(2000)))
        if at % 11 == 10:
            actions.append(("close",))
    return actions


def steps_of(actions: list[tuple[Any, ...]]) -> int:
    return run(actions, "100ms").disk.steps


@pytest.mark.parametrize("power", [True, False], ids=["power", "kill"])
@pytest.mark.parametrize("seed", range(2))
def test_a_crash_after_any_step_leaves_what_was_promised(seed: int, power: bool) -> None:
    """Each operation on the disk is once the last one; recovery is interrupted too."""
    actions = story(seed, 14)
    for stop in range(steps_of(actions)):
        for again in (1000, stop % 13):
            run([("crash", power, stop, again, 31 * stop + seed), *actions], "100ms")
