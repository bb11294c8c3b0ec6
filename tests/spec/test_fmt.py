from __future__ import annotations

import pytest

from scribengin.core.errors import InputError
from scribengin.spec.fmt import format_text

UNTIDY = """\
# on top
version:   1
name:     shop

sources:
      a:   {type: sequence,   rows:   5}     # behind
      # between
      b:
            type:    sequence
steps:
   u:
      from:
      - a
      - b
   q:
      from: u
      sql:  |
         SELECT *
           FROM u

sinks:
   k: {from: 'q', "type": console}
# below
"""


def test_layout_changes_and_comments_quotes_order_and_blank_lines_stay() -> None:
    text = format_text(UNTIDY)
    lines = text.splitlines()
    assert [line for line in lines if "#" in line] == ["# on top", lines[5], "  # between", "# below"]
    assert lines[5].startswith("  a: {type: sequence, rows: 5}")
    assert lines[5].endswith("# behind")
    assert "      - a\n      - b\n" in text
    assert "    sql: |\n      SELECT *\n        FROM u\n" in text
    assert """k: {from: 'q', "type": console}""" in text
    assert text.count("\n\n") == UNTIDY.count("\n\n")


def test_formatting_again_changes_nothing() -> None:
    assert format_text(format_text(UNTIDY)) == format_text(UNTIDY)


@pytest.mark.parametrize(
    "text",
    [
        "a: yes\nb: 0o7\nc: 1e3\nd: 010\ne: 1_000\nf: 12:30\ng: ~\nh:\ni: TRUE\nj: 2026-01-01\nk: 0x1F\nl: 1.50\n",
        "a: >-\n  folded\n  text\n\n  more\nb: |+\n  kept\n\nc: x\n",
        "a: \"é A\"\nb: 'it''s'\n",
        "a: " + "word " * 100 + "end\n",
        "a: &x 5\nb: *x\nc: &y {d: 1}\ne: *y\n",
        "",
        "# only a comment\n",
    ],
)
def test_values_stay_as_they_are_written(text: str) -> None:
    assert format_text(text) == text


def test_an_anchor_may_be_used_twice() -> None:
    text = "version: &a 1\nname: shop\nsteps:\n  q: {from: e, watermark: &a ts 10m}\n"
    assert format_text(text) == text


def test_what_is_no_yaml_is_refused_with_its_place() -> None:
    with pytest.raises(InputError, match=r"shop\.yaml:1:5"):
        format_text("a: b: c\n", "shop.yaml")
