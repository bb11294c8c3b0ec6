"""Samples: what was counted is in them once, however long ago, and they take no more room than is said."""

from __future__ import annotations

import tracemalloc
from math import nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scribengin.watching.series import BYTES, Increments, Series

NOW = 1_750_000_000.0


@given(st.lists(st.tuples(st.floats(0.2, 30.0), st.integers(0, 10_000)), min_size=1, max_size=40))
def test_every_row_is_in_the_samples_of_each_step_once(reports: list[tuple[float, int]]) -> None:
    series, at = Series(), NOW
    for seconds, rows in reports:
        at += seconds
        series.add(at, Increments(rows_in=rows))
    total = sum(rows for _, rows in reports)
    for step_s, span_s in ((10, 6 * 3600), (600, 14 * 86400)):
        read = series.read(at - span_s, at, step_s)
        assert {sample.step_s for sample in read} == {step_s}
        assert sum(sample.rows_in_per_s * step_s for sample in read) == pytest.approx(total, rel=1e-4)
    if at - NOW < 600:
        assert series.total("rows_in", NOW - 1, at) == pytest.approx(total, rel=1e-4)


def test_a_rate_is_that_of_its_second_and_what_a_long_silence_held_is_spread() -> None:
    series = Series()
    series.add(NOW, Increments())
    series.add(NOW + 10, Increments(rows_in=1000))
    assert [sample.rows_in_per_s for sample in series.read(NOW, NOW + 10, 1)][1:] == [100.0] * 10


def test_a_restart_is_one_in_one_sample_after_a_long_silence_too() -> None:
    series = Series()
    series.add(NOW, Increments())
    series.add(NOW + 30, Increments(restarts=1, batches=3))
    assert [sample.restarts for sample in series.read(NOW, NOW + 30, 1) if sample.restarts] == [1.0]
    assert series.total("batches", NOW, NOW + 30) == 3


def test_the_finest_samples_that_go_back_so_far_are_read() -> None:
    series = Series()
    for second in range(700):
        series.add(NOW + second, Increments(rows_in=1))
    now = NOW + 699
    assert {sample.step_s for sample in series.read(now - 600, now)} == {1}
    assert {sample.step_s for sample in series.read(now - 3600, now)} == {10}
    assert {sample.step_s for sample in series.read(now - 86400, now)} == {600}
    assert {sample.step_s for sample in series.read(now - 60, now, 5)} == {10}


def test_what_is_older_than_its_ring_is_gone_and_none_of_it_comes_back() -> None:
    series = Series()
    series.add(NOW, Increments(rows_in=5, lag_rows=7))
    series.add(NOW + 600, Increments(rows_in=1))  # the same place of the ring of seconds
    (sample,) = [sample for sample in series.read(NOW + 595, NOW + 600, 1) if sample.at == NOW + 600]
    assert sample.rows_in_per_s < 1
    assert sample.lag_rows is None


def test_of_lags_the_largest_is_kept_and_unknown_ones_are_none() -> None:
    series = Series()
    for second, lag in enumerate((5.0, 90.0, nan, 3.0)):
        series.add(NOW + second, Increments(lag_s=lag))
    (sample,) = series.read(NOW, NOW + 9, 10)
    assert (sample.lag_s, sample.lag_rows) == (90.0, None)


def test_a_thousand_flows_take_less_than_180_mib_however_long_they_run() -> None:
    assert 1_000 * BYTES < 180 * 2**20
    tracemalloc.start()
    series = [Series() for _ in range(20)]
    for each in series:
        for step in range(100):
            each.add(NOW + step * 86_400.0, Increments(rows_in=1, lag_rows=1))
        assert each.nbytes == BYTES
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert taken < 20 * BYTES * 1.1
