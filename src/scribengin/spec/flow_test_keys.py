"""The keys of `tests`, declared as those of `keys` are."""

from __future__ import annotations

from scribengin.spec.key import Key, Section

GIVEN = Section(
    "given",
    "The long form of what a source is given.",
    (
        Key("rows", "own", "rows, as in the short form", "[{id: 1}]"),
        Key("files", "words", "files in the source's own form, from the flow file's folder", "[samples/tweets.jsonl]"),
        Key(
            "batches", "own", "a list of lists of rows, or of `{files: …}`: each comes when the one before is committed", "[[{id: 1}], []]"
        ),
    ),
    filled=True,
)

EXPECT = Section(
    "expect",
    "The long form of what a sink must have received.",
    (
        Key("rows", "own", "these rows and no others", "[{id: 1}]"),
        Key("contains", "own", "these rows, among others", "[{id: 1}]"),
        Key("count", "int", "so many rows", "3", low=0),
        Key("files", "words", "the rows of these files: JSON lines, or Parquet", "[samples/kept.jsonl]"),
        Key("ordered", "bool", "in this order", "true", default="false"),
    ),
    filled=True,
)

CHANGED = Section(
    "changed",
    "Another flow goes on in the place of this one.",
    (
        Key("before", "text", "the first Batch that it runs", "batch 2", required=True),
        Key("flow", "text", "its file, from the flow file's folder", "next.yaml"),
        Key("patch", "own", "what it says otherwise than this one; null takes a key out", "{steps: {known: {filter: id > 3}}}"),
    ),
)

TEST = Section(
    "test",
    "What sources are given, and what must come of it.",
    (
        Key("name", "text", "a sentence that says what holds", "five hundred is not enough", required=True),
        Key(
            "given",
            "nodes",
            "source → a list of rows, or the long form; a text is a raw record; other sources are empty",
            "{tweets: [{id: 1}]}",
        ),
        Key(
            "expect",
            "nodes",
            "sink → a list of rows, or the long form; `dead` → what dead letters there must be",
            "{kept: [{id: 1}]}",
            required=True,
        ),
        Key("clock", "own", "what SQL takes for now; a list has one for each Batch", '"2026-01-01T00:00:00Z"', default="the machine's"),
        Key("crash_after", "text", "`batch N`: the process dies there, and another goes on", "batch 1"),
        Key("changed", "own", "another flow goes on between two Batches; a list of several", "{before: batch 2, flow: next.yaml}"),
    ),
)

SECTIONS = (TEST, GIVEN, EXPECT, CHANGED)
