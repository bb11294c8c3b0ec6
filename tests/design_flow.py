"""The flow of the design's fifth section, as text and as the value that it means."""

from __future__ import annotations

from scribengin.core.types import parse_schema
from scribengin.spec.model import Defaults, Filter, Flow, Python, SchemaSpec, Sink, Source, Sql, Step, Watermark

TWEETS = """\
version: 1
name: tweets
about: "Popular #PresidentialDebate tweets, kept and counted."
defaults: {delivery: exactly_once, on_error: dead_letter, trigger: 1s}

sources:
  tweets:
    type: files
    path: data                       # from the flow file's folder
    format: json
    schema: id BIGINT, user STRING, text STRING, followers BIGINT, retweets BIGINT, ts TIMESTAMP
    watermark: ts 10m

steps:
  known:   {from: tweets, filter: followers > 5000, require: {dated: ts IS NOT NULL}}
  hot:     {from: known, filter: retweets > 500}
  tagged:  {from: hot, python: "steps:has_tag"}
  by_hour: {from: tagged, sql: "SELECT window(ts, '1 hour').start AS hour, count(*) AS n FROM tagged GROUP BY window(ts, '1 hour')"}

sinks:
  kept:   {from: tagged, type: files, path: out/kept, format: parquet}
  counts: {from: by_hour, type: files, path: out/counts, format: json}

tests:
  - name: exactly five hundred is not enough
    given: {tweets: [{id: 1, user: a}]}
    expect: {kept: []}
"""

COLUMNS = SchemaSpec(parse_schema("id BIGINT, user STRING, text STRING, followers BIGINT, retweets BIGINT, ts TIMESTAMP"))
HOURLY = "SELECT window(ts, '1 hour').start AS hour, count(*) AS n FROM tagged GROUP BY window(ts, '1 hour')"
FLOW = Flow(
    "tweets",
    {"tweets": Source("tweets", "files", {"path": "data", "format": "json"}, COLUMNS, Watermark("ts", 600.0))},
    {
        "known": Step("known", ("tweets",), Filter("followers > 5000"), (("dated", "ts IS NOT NULL"),)),
        "hot": Step("hot", ("known",), Filter("retweets > 500")),
        "tagged": Step("tagged", ("hot",), Python("steps:has_tag")),
        "by_hour": Step("by_hour", ("tagged",), Sql(HOURLY)),
    },
    {
        "kept": Sink("kept", ("tagged",), "files", {"path": "out/kept", "format": "parquet"}),
        "counts": Sink("counts", ("by_hour",), "files", {"path": "out/counts", "format": "json"}),
    },
    "Popular #PresidentialDebate tweets, kept and counted.",
    Defaults("exactly_once", "dead_letter", 1.0),
)
