"""One mistake gives one error, which names the cause and nothing of another flow."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from scribengin.plan.validate import validate_file

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from scribengin.core.problems import Problem

FLOW = """\
version: 1
name: clicks
sources:
  events:
    type: files
    path: data/events
    format: json
    schema: "event_id BIGINT, user_id BIGINT, amount DOUBLE, country STRING, ts TIMESTAMP"
    watermark: ts 10m
  countries:
    type: files
    path: data/countries
    format: csv
    header: true
    schema: "country STRING, region STRING, name STRING"
    static: true
steps:
  valid:
    from: events
    filter: amount > 0
  enriched:
    from: [valid, countries]
    join: {key: [country], how: left}
  hourly:
    from: enriched
    aggregate:
      by: [region]
      window: {time: ts, size: 1h}
      columns: {n: count(*), total: sum(amount)}
sinks:
  table:
    from: hourly
    type: files
    path: out/hourly
    format: parquet
"""
DASHED = FLOW.replace("  events:\n", "  - events:\n", 1).replace("  countries:\n", "  - countries:\n", 1)
STRANGERS = re.compile(r"\b(tweets|tagged|known|kept|hosts_a|retweets|followers)\b")
"""names of the reference's examples"""


@pytest.mark.parametrize(
    ("right", "wrong", "code", "shows"),
    [
        ("    from: hourly", "    form: hourly", "unknown-option", 'did you mean "from"?'),
        ("    from: events", "    form: events", "unknown-key", 'did you mean "from"?'),
        ("    format: json", "    fromat: json", "unknown-option", 'did you mean "format"?'),
        ("    filter: amount > 0", "    filtr: amount > 0", "unknown-key", 'did you mean "filter"?'),
        ("    aggregate:", "    agregate:", "unknown-key", 'did you mean "aggregate"?'),
        ("\nsources:", "\nsource:", "unknown-key", 'did you mean "sources"?'),
        ("\nsteps:", "\nstep:", "unknown-key", 'did you mean "steps"?'),
        ("\nsinks:", "\nsink:", "unknown-key", 'did you mean "sinks"?'),
        ("    from: hourly\n", "", "missing-key", "add from: with one of events, countries, valid, enriched, hourly"),
        ("key: [country]", "key: [contry]", "column-unknown", 'did you mean "country"?'),
        ("key: [country]", "on: country", "unknown-key", 'did you mean "key"? ("on" is a word of PySpark'),
        ("by: [region]", "by: [regions]", "column-unknown", 'did you mean "region"?'),
        ("how: left", "kind: left", "unknown-key", 'did you mean "how"?'),
        ("how: left", "type: left_outer", "unknown-key", 'did you mean "how"?'),
        ("how: left", "join_type: left", "unknown-key", 'did you mean "how"? ("join_type" is a word of PySpark'),
        ("how: left", "how: left_anti", "bad-choice", "write how: left, then filter for rows"),
        ("key: [country], ", "", "missing-key", "add key: [COLUMN]"),
        ("from: [valid, countries]", "from: [valid, hourly]", "cycle", "such as to countries, which is not used"),
        ("sum(amount)", "summ(amount)", "sql-function-unknown", 'did you mean "sum"?'),
        ("    from: events", "    from: event", "input-unknown", 'did you mean "events"?'),
        ("filter: amount > 0", 'python: "steps.py:check"', "python-module-missing", 'did you mean "steps:check"?'),
        ("filter: amount > 0", 'python: "no.py:check"', "python-module-missing", 'write "no:check", and put no.py beside the flow file'),
        ("    watermark: ts 10m\n", "", "watermark-missing", "add to events: watermark: ts 10m"),
        ("    watermark: ts 10m\n", "    watermark: tss 10m\n", "time-column-unknown", 'did you mean "ts"?'),
        ("type: files\n    path: data/events", "type: s3\n    path: data/events", "unknown-type", "write type: objects, with `url: s3:"),
        ("type: files\n    path: data/events", "type: jdbc\n    path: data/events", "unknown-type", "type: postgres, for PostgreSQL [unk"),
        ("type: files\n    path: data/events", "type: kinesis\n    path: data", "unknown-type", "kinesis is not supported; copy its"),
        ("type: files\n    path: out", "type: parquet\n    path: out", "unknown-type", "write type: files, with `format: parquet`"),
        ("type: files\n    path: out", "type: mysql\n    path: out", "unknown-type", "mysql is not supported; a sink of `type: spark`"),
        ("  events:\n    type: files\n", "  events: {\n    type: files\n", "yaml-syntax", ""),
        ("    from: events\n", "", "missing-key", "add from: with one of events, countries [missing-key]"),
        ("from: [valid, countries]", "from: [valid]", "inputs-count", "add a second input: from: [valid, ID]"),
        ("from: [valid, countries]", "from: [valid, countries, events]", "inputs-count", "and join events in a further step"),
        ("how: left}", "how: left, within: 1h}", "time-within", "add time: {valid: COLUMN, countries: COLUMN}"),
        ("    filter: amount > 0\n", "    merge: {how: union}\n", "inputs-count", "add a second input: from: [events, ID]"),
        ("    path: out/hourly\n", "", "missing-key", "has no `path`; add path: out/table [missing-key]"),
        (
            "type: files\n    path: out/hourly\n    format: parquet",
            "type: kafka\n    bootstrap: 'b:9092'\n    format: json",
            "missing-key",
            "add topic: TOPIC [missing-key]",
        ),
        ("sinks:\n", "tiers: {a: {steps: [valdi]}, b: {steps: [hourly]}}\nsinks:\n", "tier-node-unknown", 'did you mean "valid"?'),
    ],
)
def test_one_mistake_is_one_error_that_names_its_cause(tmp_path: Path, right: str, wrong: str, code: str, shows: str) -> None:
    assert right in FLOW
    (problem,) = _problems(tmp_path, FLOW.replace(right, wrong, 1))
    assert problem.code == code
    assert problem.severity == "error"
    assert shows in str(problem)
    assert not STRANGERS.search(str(problem))


@pytest.mark.parametrize("reads", ["from: valid", "from: events"])
def test_a_misspelt_watermark_is_one_error_whatever_reads_it(tmp_path: Path, reads: str) -> None:
    text = FLOW.replace("    from: enriched", f"    {reads}").replace("by: [region]", "by: [country]")
    text += "  all: {from: enriched, type: files, path: out/all, format: json}\n"
    (problem,) = _problems(tmp_path, text.replace("watermark: ts", "watermark: tss"))
    assert problem.code == "time-column-unknown"


def _slips(word: str) -> Iterator[str]:
    """The word without its last letter, with one more, with two that changed places."""
    yield from (word[:-1], f"{word}x", word[:1] + word[2:3] + word[1:2] + word[3:])


def test_every_slip_in_a_key_or_an_id_is_one_error_at_its_cause(tmp_path: Path) -> None:
    free = {"n", "total", "table"}  # names that nothing else in the flow uses
    text = FLOW.replace("    filter: amount > 0", "    filter: amount > 0\n    on_error: drop")
    tried = 0
    for key in re.finditer(r"(?<!\w)([a-z_]+):", text):
        for slip in _slips(key[1]):
            if key[1] in free or slip == key[1]:
                continue
            found = _problems(tmp_path, text[: key.start(1)] + slip + text[key.end(1) :])
            assert len(found) == 1, (key[1], slip, [str(problem) for problem in found])
            assert not STRANGERS.search(str(found[0]))
            tried += 1
    assert tried > 90


def test_ids_with_dashes_are_one_error_and_the_rest_is_checked(tmp_path: Path) -> None:
    nodes = re.sub(r"(?m)^  - ", "  - ", DASHED)
    (problem,) = _problems(tmp_path, nodes)
    assert (problem.code, problem.remedy) == ("wrong-kind", 'write "events:" without the dash')
    found = _problems(tmp_path, nodes.replace("key: [country]", "key: [contry]"))
    assert [problem.code for problem in found] == ["wrong-kind", "column-unknown"]


def test_a_section_that_is_missing_is_one_error(tmp_path: Path) -> None:
    for section, after in (("sources", "steps"), ("sinks", "")):
        start = FLOW.index(f"{section}:")
        text = FLOW[:start] + (FLOW[FLOW.index(f"\n{after}:") + 1 :] if after else "")
        (problem,) = _problems(tmp_path, text)
        assert (problem.code, problem.remedy) == ("missing-key", f"add {section}: {{ID: {{…}}}}")


def test_where_no_column_is_a_timestamp_the_remedy_says_so(tmp_path: Path) -> None:
    text = (
        FLOW.replace("    watermark: ts 10m\n", "").replace("ts TIMESTAMP", "ts STRING").replace("      window: {time: ts, size: 1h}\n", "")
    )
    (problem,) = _problems(tmp_path, text)
    assert problem.code == "watermark-missing"
    assert "compute a TIMESTAMP column in a select step (events has none)" in problem.remedy


def test_a_key_that_is_set_already_is_no_guess(tmp_path: Path) -> None:
    (problem,) = _problems(tmp_path, FLOW.replace("    from: hourly", "    from: hourly\n    fron: hourly"))
    assert problem.remedy == 'take it out: "from" is set already'


def test_no_sentence_has_an_empty_list(tmp_path: Path) -> None:
    head = "version: 1\nname: a\nsources:\n  n: {type: sequence}\n"
    text = head + "steps:\n  s: {from: x, filter: id > 1}\nsinks:\n  k: {from: s, type: console}\n"
    for problem in _problems(tmp_path, text):
        assert not re.search(r"\b(are|have|has|of)\s*$", problem.remedy)


def _problems(tmp_path: Path, text: str) -> list[Problem]:
    file = tmp_path / "flow.yaml"
    file.write_text(text)
    (tmp_path / "steps.py").write_text("def check(row):\n    return row\n")
    return validate_file(file, {}, tests=True)[1]
