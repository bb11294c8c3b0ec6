"""A limit that is set while a flow runs holds from the next Batch: measured by a clock."""

from __future__ import annotations

import time

from scribengin.local.rate_limit import FlowLimits, RateLimit

FLOW = """\
version: 1
name: paced
sources:
  rows: {type: files, path: data, format: json, schema: "id BIGINT", max_files: 1}
sinks:
  kept: {from: rows, type: files, path: out, format: json}
"""


def paced(folder, limits, watch=lambda view: None):
    """How long the run takes, with its start. However slow the machine is, no less than what the limit wants."""
    begun = time.monotonic()
    assert folder.run(watch, limits=limits).balanced
    return time.monotonic() - begun


def test_a_limit_of_a_source_and_of_a_flow_is_kept_and_taken_off_while_it_runs(folder):
    folder.flow(FLOW)
    for number in range(10):
        folder.data(f"data/{number}.jsonl", [{"id": number * 100 + n} for n in range(100)])
    # the first hundred come at once, and what is due is not lost
    assert paced(folder, lambda: FlowLimits(sources={"rows": RateLimit(rows_per_s=100)})) > 8

    for number in range(10, 30):
        folder.data(f"data/{number}.jsonl", [{"id": number * 100 + n} for n in range(100)])
    now = [FlowLimits(flow=RateLimit(rows_per_s=10))]

    def off(view):
        if any(query.rows_in >= 40 for query in view.queries):
            now[0] = FlowLimits()

    assert 2.0 < paced(folder, lambda: now[0], off) < 180.0, "2,000 rows at 10 rows/s would take 200 s"
    assert sorted(row["id"] for row in folder.read("out")) == list(range(3000))


def test_bytes_are_limited_as_rows_are(folder):
    folder.flow(FLOW)
    for number in range(6):
        folder.data(f"data/{number}.jsonl", [f'{{"id": {1000 + number * 100 + n}}}' for n in range(100)])
    size = (folder.path / "data" / "0.jsonl").stat().st_size
    assert paced(folder, lambda: FlowLimits(sources={"rows": RateLimit(bytes_per_s=size)})) > 4
