"""What tasks report: typed on the way to the driver, and in one stored form beside task outputs that commit one by one."""

from __future__ import annotations

import pickle

import msgspec
import pytest

from scribengin.formats.column_notices import UnfilledColumns
from scribengin.formats.notice import FormatNotice
from scribengin.spark.task_report import StageReport, TaskReport, newest_times, repeated_dead_letters, report_of, seconds_of
from scribengin.state.contract import LineSegment

WHOLE = TaskReport(
    receipts=[{"sink": "kept", "unit": 3, "rows": 2}],
    dead=LineSegment("0000000001/a.jsonl", 1, 90, 7),
    counts={"tweets": {"in": 3, "out": 2, "dead": 1}},
    leaves=1_700_000_000_000_000,
    seconds={"clean": 0.25},
    noticed=[FormatNotice("tweets", "lang", "new", "STRING", "a.json", 4)],
    nulls={"tweets": UnfilledColumns(records=3, columns={"geo": "STRING"})},
    taken={"parsed": {"L1": {"7": {"0": [3, 2**63]}}}},
    orders={"u": {"names": ["a"], "asked": [3], "ns": [900]}},
    newest={"tweets": (1_700_000_000_000_000, None)},
    lookups=["l1"],
    again={"users": 2},
    plan="f00d",
)
STORED = (
    b'{"receipts":[{"sink":"kept","unit":3,"rows":2}],"dead":{"name":"0000000001/a.jsonl","rows":1,"bytes":90,"crc":7},'
    b'"counts":{"tweets":{"in":3,"out":2,"dead":1}},"trails":null,"leaves":1700000000000000,"seconds":{"clean":0.25},'
    b'"noticed":[{"source":"tweets","column":"lang","kind":"new","type":"STRING","file":"a.json","line":4,"records":0}],'
    b'"nulls":{"tweets":{"records":3,"columns":{"geo":"STRING"}}},"taken":{"parsed":{"L1":{"7":{"0":[3,9223372036854775808]}}}},'
    b'"orders":{"u":{"names":["a"],"asked":[3],"ns":[900]}},"newest":{"tweets":[1700000000000000,null]},"lookups":["l1"],'
    b'"again":{"users":2},"plan":"f00d"}'
)
"""as task outputs that committed before have it"""


def test_the_stored_form_is_byte_for_byte_what_it_was_and_is_read_back() -> None:
    assert msgspec.json.encode(WHOLE.as_json()) == STORED
    assert report_of(msgspec.json.decode(STORED)) == WHOLE


def test_a_report_without_a_plan_has_no_key_for_it() -> None:
    assert list(TaskReport().as_json()) == [key for key in msgspec.json.decode(STORED) if key != "plan"]


def test_a_report_reaches_the_driver_as_it_was_written_as_a_row_and_by_the_accumulator() -> None:
    row = msgspec.json.encode(StageReport(51, "tweets/3", WHOLE))
    assert msgspec.json.decode(row, type=StageReport) == StageReport(51, "tweets/3", WHOLE)
    assert pickle.loads(pickle.dumps({(1, 51, "tweets/3"): WHOLE})) == {(1, 51, "tweets/3"): WHOLE}


@pytest.mark.parametrize("key", ["dead", "counts", "newest"])
def test_a_stored_report_with_a_wrong_value_is_refused(key: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=key):
        report_of({**msgspec.json.decode(STORED), key: 3})


def test_the_figures_of_tasks_are_added_and_of_equal_times_the_first_record_stands() -> None:
    other = TaskReport(again={"users": 1, "langs": 1}, seconds={"clean": 0.5}, newest={"tweets": (1_700_000_000_000_000, 5)})
    third = TaskReport(newest={"tweets": (1_700_000_000_000_000, 4)})
    assert repeated_dead_letters([WHOLE, other]) == {"users": 3, "langs": 1}
    assert seconds_of([WHOLE, other, third]) == {"clean": 0.75}
    assert newest_times([other, third]) == {"tweets": (1_700_000_000_000_000, 4)}
