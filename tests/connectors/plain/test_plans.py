"""What the plan says of sinks whose place only takes rows, before anything runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from scribengin.plan.validate import validate_file

if TYPE_CHECKING:
    from pathlib import Path

    from scribengin.core.problems import Problem

FLOW = """
version: 1
name: shop
sources: {orders: {type: files, path: data, format: json, schema: "id BIGINT NOT NULL, name STRING, tags ARRAY<STRING>"}}
sinks:
  kept: {from: orders, SINK}
"""


def problems(folder: Path, sink: str, *, delivery: str = ", delivery: at_least_once") -> list[Problem]:
    (folder / "data").mkdir()
    file = folder / "flow.yaml"
    file.write_text(FLOW.replace("SINK", sink + delivery))
    return list(validate_file(file, {"P": "hunter2"})[1])


@pytest.mark.parametrize(
    "sink",
    [
        "type: spark, format: orc, path: out",
        "type: spark, format: orc, path: 's3a://bucket/out'",
        "type: spark, format: orc, options: {path: /out}",
        "type: spark, format: jdbc, options: {url: 'jdbc:x', dbtable: t, password: '${secret:env/P}'}",
        "type: spark, format: delta, path: out, transaction: {app: txnAppId, version: txnVersion}",
        "type: http, url: 'https://h/x?v=1'",
        "type: http, url: 'https://h/{name}/x?id={id}'",
        "type: http, url: 'http://127.0.0.1:80/x', headers: {Authorization: 'Bearer ${secret:env/P}'}, body: lines, rows: 10",
    ],
)
def test_these_are_right(tmp_path: Path, sink: str) -> None:
    assert problems(tmp_path, sink) == []


@pytest.mark.parametrize(
    ("sink", "code", "said"),
    [
        ("type: spark, format: orc", "writer-options", "add path"),
        ("type: spark, format: ORC", "writer-options", "add path"),
        ("type: spark, format: orc, path: out, options: {path: x}", "writer-options", "a path twice"),
        ("type: spark, format: noop", "writer-options", "take the sink out"),
        ("type: spark, format: rate", "writer-options", "which Spark can only read"),
        ("type: spark, format: x, transaction: {app: a, version: a}", "writer-options", "the same option for `app` and `version`"),
        ("type: spark, format: x, options: {v: 1}, transaction: {app: a, version: v}", "writer-options", 'the option "v"'),
        ("type: spark, format: x, transaction: {app: a}", "missing-key", "version"),
        ("type: spark, path: out", "missing-key", "format"),
        ("type: spark, format: orc, path: out, mode: overwrite", "bad-choice", "append"),
        ("type: spark, format: orc, path: out, partition_by: [day]", "partition-unknown", '"day"'),
        ("type: spark, format: orc, path: data", "folder-read-and-written", "data"),
        ("type: http, url: 'h/x'", "http-url", "https://HOST/PATH"),
        ("type: http, url: 'me:hunter2@h/x'", "http-url", "the value of `url`"),
        ("type: http, url: 'https:///x'", "http-url", "https://HOST/PATH"),
        ("type: http, url: 'https://h:port/x'", "http-url", "https://HOST/PATH"),
        ("type: http, url: 'ftp://h/x'", "http-url", "https://HOST/PATH"),
        ("type: http, url: 'https://{name}/x'", "http-url", "column in the host"),
        ("type: http, url: 'https://h/{name}', body: lines", "http-url", "body: object"),
        ("type: http, url: 'https://h/{nam}'", "column-unknown", 'did you mean "name"?'),
        ("type: http, url: 'https://h/{tags}'", "http-url", "ARRAY<STRING>"),
        ("type: http, url: 'https://me:hunter2@h/x'", "secret-in-plain", "headers: {Authorization"),
        ("type: http, url: 'https://h/x?api_key=hunter2'", "secret-in-plain", "query: {api_key"),
        ("type: http, url: 'https://h/x', rows: 10", "http-options", "body: array"),
        ("type: http, url: 'https://h/x', headers: {content-length: '3'}", "http-options", "take it out"),
        ("type: http, url: 'https://h/x', headers: {Idempotency-key: '3'}", "http-options", "take it out"),
    ],
)
def test_these_are_wrong(tmp_path: Path, sink: str, code: str, said: str) -> None:
    (problem,) = problems(tmp_path, sink)
    assert (problem.code, problem.severity) == (code, "error")
    assert said in str(problem)
    assert "hunter2" not in str(problem)
    assert problem.place.line == 6


@pytest.mark.parametrize(
    ("headers", "said"), [("", "sends rows over"), (", headers: {A: '${secret:env/P}'}", "sends rows and secrets over")]
)
def test_rows_in_plain_are_warned_of(tmp_path: Path, headers: str, said: str) -> None:
    (problem,) = problems(tmp_path, f"type: http, url: 'http://api.example.com/x'{headers}")
    assert (problem.code, problem.severity) == ("http-plain", "warning")
    assert said in problem.message


@pytest.mark.parametrize(
    ("sink", "can"),
    [
        ("type: http, url: 'https://h/x'", "or use a sink that supports it"),
        ("type: spark, format: orc, path: out", "or set the writer's option for it: transaction: {app: txnAppId, version: txnVersion}"),
    ],
)
def test_exactly_once_is_not_promised(tmp_path: Path, sink: str, can: str) -> None:
    (problem,) = problems(tmp_path, sink, delivery="")
    assert problem.code == "delivery-unsupported"
    assert problem.remedy.startswith("write delivery: at_least_once")
    assert can in problem.remedy


def test_a_transaction_makes_it_exactly_once(tmp_path: Path) -> None:
    assert problems(tmp_path, "type: spark, format: x, transaction: {app: a, version: b}", delivery="") == []
