"""The keys of `tests`, declared in the same way as in `keys`."""

from __future__ import annotations

from scribengin.spec.key import Key, Section

GIVEN = Section(
    "given",
    "The long form of a source's input.",
    (
        Key("rows", "own", "rows, as in the short form", "[{id: 1}]"),
        Key("files", "words", "files in the source's own format; paths are relative to the flow file's folder", "[samples/tweets.jsonl]"),
        Key(
            "batches",
            "own",
            "a list of lists of rows, or of `{files: …}`: each is delivered after the one before it is committed",
            "[[{id: 1}], []]",
        ),
    ),
    filled=True,
)

EXPECT = Section(
    "expect",
    "The long form of a sink's expected rows.",
    (
        Key("rows", "own", "exactly these rows", "[{id: 1}]"),
        Key("contains", "own", "at least these rows", "[{id: 1}]"),
        Key("count", "int", "the number of rows", "3", low=0),
        Key("files", "words", "the rows of these files (JSON lines or Parquet)", "[samples/kept.jsonl]"),
        Key("ordered", "bool", "the rows must come in this order", "true", default="false"),
    ),
    filled=True,
)

CHANGED = Section(
    "changed",
    "A change of the flow in the middle of the test: another flow continues with its state.",
    (
        Key("before", "text", "the first Batch that the changed flow runs", "batch 2", required=True),
        Key("flow", "text", "the file of the changed flow; the path is relative to the flow file's folder", "next.yaml"),
        Key("patch", "own", "overrides merged into this flow; null removes a key", "{steps: {known: {filter: id > 3}}}"),
    ),
)

TEST = Section(
    "test",
    "A test: the input of the sources and the expected output of the sinks.",
    (
        Key(
            "name",
            "text",
            "a sentence that states what is tested",
            "five hundred is not enough",
            required=True,
            placeholder="WHAT IT TESTS",
        ),
        Key(
            "given",
            "nodes",
            "source → a list of rows, or the long form; a text is a raw record; sources that are not listed are empty",
            "{tweets: [{id: 1}]}",
        ),
        Key(
            "expect",
            "nodes",
            "sink → a list of rows, or the long form; `dead` → the expected dead letters",
            "{kept: [{id: 1}]}",
            required=True,
        ),
        Key(
            "clock",
            "own",
            "the current time in SQL; a list has one time for each Batch",
            '"2026-01-01T00:00:00Z"',
            default="the machine's clock",
        ),
        Key("crash_after", "text", "`batch N`: the process crashes there, and another process continues", "batch 1"),
        Key(
            "changed",
            "own",
            "another flow continues from a Batch on; a list if there are several changes",
            "{before: batch 2, flow: next.yaml}",
        ),
    ),
)

SECTIONS = (TEST, GIVEN, EXPECT, CHANGED)
