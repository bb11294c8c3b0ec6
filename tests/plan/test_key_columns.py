"""Which columns of sources are read as keys, through the steps between."""

from __future__ import annotations

from pathlib import Path

from scribengin.connectors.catalog import sink_types, source_types
from scribengin.plan.key_columns import key_columns
from scribengin.spec.parse import parse_flow

FLOW = """\
version: 1
name: shop
sources:
  events:
    {type: files, path: data, format: json, watermark: ts 1m, schema: "id BIGINT NOT NULL, ts TIMESTAMP, land STRING, kind STRING, n INT"}
  countries: {type: files, path: lookup, format: csv, static: true, schema: "country STRING NOT NULL, name STRING, region STRING"}
  codes: {type: files, path: codes, format: csv, static: true, schema: "region STRING, code STRING"}
steps:
  bought: {from: events, filter: "n > 0"}
  named: {from: bought, select: {id: id, ts: ts, country: "`land`", kind: kind, n: "n + 1"}}
  placed: {from: [named, countries], join: {key: [country], how: left}}
  coded: {from: codes, sql: "SELECT region, code FROM codes"}
  more: {from: [placed, coded], join: {key: [region], how: left}}
  hours: {from: more, aggregate: {by: [region, kind], window: {time: ts, size: 1h}, columns: {n: sum(n)}}}
  once: {from: named, dedupe: {key: [id], time: ts, within: 1h}}
sinks:
  hourly: {from: hours, type: files, path: hours, format: json, partition_by: [kind]}
  all: {from: once, type: files, path: all, format: json, partition_by: [country, {time: ts, path: "dt=%Y-%m-%d"}]}
"""


def test_keys_are_followed_to_the_sources_that_have_them() -> None:
    parsed = parse_flow(FLOW, "f.yaml", folder=Path(), environment={}, source_types=source_types(), sink_types=sink_types())
    assert parsed.flow is not None
    found = key_columns(parsed.flow)
    assert {source: set(columns) for source, columns in found.items()} == {
        "events": {"ts", "land", "kind"},  # a record without `id` is a dead letter
        "countries": {"country", "region"},
        "codes": set(),  # behind SQL
    }
    assert found["countries"]["country"] == 'the join key of step "placed"'
    assert found["countries"]["region"] == 'a group-by column of step "hours"'
