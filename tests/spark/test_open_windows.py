"""What the end of a run says of windows that are still open: which, until when, and which records let them out."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from scribengin.local.prepare import prepare
from scribengin.spark.open_windows import open_windows_note
from scribengin.state.clocks import Clock

if TYPE_CHECKING:
    from pathlib import Path

FLOW = """\
version: 1
name: day
sources:
  shop: {type: files, path: data, format: json, schema: "id BIGINT, at TIMESTAMP", watermark: at 10m}
  web: {type: files, path: data, format: json, schema: "id BIGINT, seen TIMESTAMP", watermark: seen 1h}
steps:
  seen: {from: web, select: {id: id, at: seen}}
  both: {from: [shop, seen], merge: {how: union}}
  hourly: {from: both, aggregate: {by: [id], window: {time: at, size: 1h}, columns: {n: count(*)}}}
sinks:
  out: {from: hourly, type: files, path: out, format: json}
"""


def us(text: str) -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1e6)


def note(tmp_path: Path, held: int, watermark: str, **newest: str) -> str | None:
    (tmp_path / "data").mkdir(exist_ok=True)
    (tmp_path / "flow.yaml").write_text(FLOW)
    (tier,) = prepare(tmp_path / "flow.yaml", state=None).tiers
    parts: Any = SimpleNamespace(plan=tier.plan, query=tier.plan.queries[0])
    clocks = {id_: Clock(us(text), 0, 0, 0) for id_, text in newest.items()}
    return open_windows_note(parts, held=held, watermark=watermark, clocks=clocks)


def test_each_input_that_is_behind_has_its_record(tmp_path: Path) -> None:
    said = note(tmp_path, 2, "2026-01-01T22:30:00+00:00", shop="2026-01-01T23:30:00", web="2026-01-01T22:30:00")
    assert said == (
        '2 groups stay open in "hourly" until the watermark (2026-01-01T22:30:00Z) reaches 2026-01-02T00:00:00Z: that takes a record of '
        '"shop" that reaches "hourly", with "at" from 2026-01-02T00:10:00Z on and '
        'a record of "web" that reaches "hourly", with "seen" from 2026-01-02T01:00:00Z on, '
        "in this run or a later one"
    )
    said = note(tmp_path, 1, "2026-01-01T22:30:00+00:00", shop="2026-01-02T03:00:00", web="2026-01-01T22:30:00")
    assert said is not None
    assert said.startswith('1 group stays open in "hourly"')
    assert '"shop"' not in said


def test_without_clocks_the_note_says_until_when(tmp_path: Path) -> None:
    said = note(tmp_path, 1, "2026-01-01T22:30:00+00:00")
    assert said == '1 group stays open in "hourly" until the watermark (2026-01-01T22:30:00Z) reaches 2026-01-02T00:00:00Z'
