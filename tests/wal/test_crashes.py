"""Whatever crashes, and whenever: what was durable is there, nothing is invented, no number has two contents, and positions fit the
frames."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scribengin.wire.frames import find_frames
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


DAMAGES = st.tuples(st.sampled_from(["flip", "cut", "remove", "zero", "grow"]), SEEDS, SEEDS)


def damage(model: LogModel, kind: str, file: int, seed: int) -> None:
    """What a bad disk or a person does to one file."""
    names = [name for name in model.disk.names() if name not in {"log.json", "reserve"} and not name.startswith((".", "damaged-"))]
    name = names[file % len(names)]
    content, random = model.disk.files[name].cache, Random(seed)
    at = random.randrange(len(content) + 1)
    match kind:
        case "flip" if at < len(content):
            content[at] ^= 1 << random.randrange(8)
        case "cut":
            del content[at:]
        case "remove":
            del model.disk.files[name]
        case "zero":
            content[at : at + 50] = bytes(len(content[at : at + 50]))
        case "grow":
            content += random.choice([bytes(30), bytes(content[:at]), random.randbytes(40)])


@given(st.lists(ACTIONS, min_size=12, max_size=40), st.sampled_from(["each", "100ms"]), DAMAGES)
@settings(PROFILE, max_examples=200)
def test_damage_is_lost_in_place_and_no_number_gets_another_content(
    actions: list[tuple[Any, ...]], sync: str, damaged: tuple[str, int, int]
) -> None:
    model = run(actions, sync)
    for _ in range(3):
        model.append(100, 1, 0)
    model.make_durable(force=True)
    promised, newest = model.promised, model.wal.positions if model.wal else {}
    model.disk.crash(power=False)
    damage(model, *damaged)
    wal = model.open()
    assert wal.next == wal.durable >= promised
    by_number = {each.head.sequence: each.frame for each in model.frames}
    at = start = wal.acknowledged
    while (piece := wal.read(at, 500)) is not None:
        assert piece.sequence <= at if at > start else piece.sequence <= max(at, model.lowest())
        at = piece.sequence
        for found in find_frames(piece.bytes):
            assert found.head is not None
            assert found.head.sequence == at
            assert found.head.kind == "lost" or piece.bytes[found.start : found.end] == by_number[at]
            at = found.head.next
    assert at == wal.next
    assert all(origin.end <= newest[file].end for file, origin in wal.positions.items())
    wal.close()
    assert model.open().faults == []


@pytest.mark.parametrize("seed", range(8))
def test_a_crash_while_the_log_is_made_leaves_no_log_or_a_whole_one(seed: int) -> None:
    made = LogModel()
    made.open()
    for stop in range(made.disk.steps):
        model = LogModel()
        model.disk.stop_after = stop
        with pytest.raises(Stopped):
            model.open()
        model.disk.crash(power=seed > 0, seed=seed)
        assert model.open().faults == []
        model.append(10, 1, 0)
        model.make_durable(force=True)
        model.crash(power=True, again=1000, seed=seed, unsure=0)
        assert model.next() == 1


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


@pytest.mark.parametrize(("power", "seed"), [(True, 0), (True, 1), (False, 2)])
def test_a_crash_after_any_step_leaves_what_was_promised(seed: int, power: bool) -> None:
    """Each operation on the disk is once the last one; recovery is interrupted too."""
    actions = story(seed, 22)
    for stop in range(steps_of(actions)):
        for again in (1000, stop % 13):
            run([("crash", power, stop, again, 31 * stop + seed), *actions], "100ms")
