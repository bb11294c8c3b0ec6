"""Bad records and files of one run: each has a dead letter with its place and reason, and no good record is lost."""

import json

import pytest


def ids(bad_run, sink, *, below=100):
    return sorted(row["id"] for row in bad_run.folder.read(f"out/{sink}") if row["id"] < below)


def test_every_good_record_beside_a_bad_one_is_kept_and_the_ledger_balances(bad_run):
    assert bad_run.result.state == "finished", bad_run.result.problems
    assert bad_run.result.balanced, bad_run.result.violations
    assert ids(bad_run, "kept") == bad_run.good
    assert ids(bad_run, "numbers") == bad_run.good


@pytest.mark.parametrize(
    ("file", "says"),
    [
        ("malformed.jsonl", "truncated JSON"),
        ("trailing.jsonl", "trailing"),
        ("wrong_type.jsonl", "id"),
        ("out_of_range.jsonl", "small"),
        ("missing.jsonl", "id"),
        ("not_utf8.jsonl", "utf-8"),
        ("long_line.jsonl", "16.0 MiB"),
    ],
)
def test_a_bad_line_is_a_dead_letter_with_its_file_line_and_reason(bad_run, file, says):
    for query in ("kept", "numbers"):
        (letter,) = bad_run.letters_of(query, file)
        assert (letter.step, letter.line) == ("rows", 2)
        assert says in letter.message.lower() or says in letter.message, letter.message
        assert letter.payload


def test_a_line_of_50_mb_is_kept_with_its_first_64_kib(bad_run):
    (letter,) = bad_run.letters_of("kept", "long_line.jsonl")
    assert letter.truncated
    assert len(letter.payload) <= 2**16


def test_a_truncated_gzip_gives_what_stood_before_and_one_dead_letter_with_the_byte(bad_run):
    (letter,) = bad_run.letters_of("kept", "truncated.jsonl.gz")
    assert letter.reason
    assert letter.offset is not None or letter.line is not None
    found = [row["id"] for row in bad_run.folder.read("out/kept") if row["id"] >= 5000]
    assert found
    assert found == [*range(5000, 7000)][: len(found)] or found[:2000] == [*range(5000, 7000)]


@pytest.mark.parametrize(
    ("id_", "reason", "says"),
    [
        (1001, "raised", "I do not like 1001"),
        (1002, "raised", "must return a dict"),
        (1003, "time-limit", "time limit of 1 s"),
        (1004, "", "colour"),
        (1005, "", "small"),
    ],
)
def test_a_step_that_raises_answers_wrongly_or_hangs_costs_that_record_only(bad_run, id_, reason, says):
    (letter,) = [letter for letter in bad_run.letters_of("kept", "steps.jsonl") if json.loads(letter.payload)["id"] == id_]
    assert letter.step == "checked"
    assert reason in letter.reason
    assert says in letter.message, letter.message
    if id_ == 1001:
        assert letter.code_line == "steps.py:3"


def test_a_cast_that_fails_in_one_row_costs_that_row_only(bad_run):
    (letter,) = bad_run.letters_of("numbers", "cast.jsonl")
    assert letter.step == "cast"
    assert "two thousand" in letter.message
    assert sorted(row["id"] for row in bad_run.folder.read("out/kept") if row["id"] == 2000) == [2000]
