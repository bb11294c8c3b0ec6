"""What `status` says of columns: each kind that a decision may hold, and those of a later release."""

import pytest

from scribengin.cli.commands.status import _show_columns


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("new", "a new column"),
        ("renamed", "no value; the file has eventId"),
        ("null", "no value in 12 records"),
        ("nulled", "does not fit: 12 values"),
        ("of-tomorrow", "of-tomorrow"),
    ],
)
def test_each_kind_is_said_in_words(kind, said, capsys):
    row = {"source": "events", "column": "event_id", "kind": kind, "type": "eventId", "records": 12}
    _show_columns({"noticed": [row | {"file": "b.jsonl", "line": 3, "batch": 0, "now": "null"}], "accepted": []})
    assert said in capsys.readouterr().out
