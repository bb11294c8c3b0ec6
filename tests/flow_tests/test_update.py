from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from scribengin.core.errors import Refused
from scribengin.flow_tests.contract import Difference, FlowTestOutcome, Result
from scribengin.flow_tests.update import rewrites
from scribengin.plan.test_files import PlacedTest
from scribengin.spec.read_tests import parse_tests
from scribengin.state.contract import DeadLetter

ROWS = [{"id": number, "user": "ada"} for number in range(12)]
LETTER = DeadLetter("a", "q", 1, "orders", "malformed", "no object", line=2)


def failed(file: Path, *, rows: Any = ROWS, dead: Any = ()) -> list[tuple[PlacedTest, FlowTestOutcome]]:
    """Every test of the file, as one in which neither the rows nor the dead letters were as expected."""
    text = file.read_text()
    tests, problems, places, prefix = parse_tests(text, str(file), folder=Path())
    assert problems == ()
    result = Result("finished", {"kept": rows}, {}, dead, {}, True)
    made = []
    for test in tests:
        placed = PlacedTest(test, file, places, (*prefix, test.index), text)
        wrong = [Difference("sink kept", "", placed.place(("name",)), node="kept")] if test.expect else []
        wrong += [Difference("dead letters", "", placed.place(("name",)))] if dead else []
        made.append((placed, FlowTestOutcome("f", "f.yaml", test.name, placed.place(("name",)), 0.0, tuple(wrong), result=result)))
    return made


def updated(file: Path, *members: tuple[PlacedTest, FlowTestOutcome]) -> str:
    for rewrite in list(rewrites(members or failed(file))):
        rewrite.write()
    return file.read_bytes().decode()


def test_a_test_of_two_flows_is_rewritten_once_and_only_where_they_agree(tmp_path: Path) -> None:
    file, other = tmp_path / "t.yaml", tmp_path / "one" / ".." / "t.yaml"
    (tmp_path / "one").mkdir()
    file.write_text("- {name: a, expect: {kept: 7}}\n")
    assert updated(file, *failed(file), *failed(other)) == "- {name: a, expect: {kept: 12}}\n"
    with pytest.raises(Refused, match="another in another"):
        updated(file, *failed(file, rows=[]), *failed(other, rows=ROWS[:2]))


def test_a_file_that_is_another_by_now_stays(tmp_path: Path) -> None:
    file = tmp_path / "t.yaml"
    file.write_text("- {name: a, expect: {kept: 7}}\n")
    members = failed(file)
    file.write_text("- {name: b, expect: {kept: 5}}\n" + file.read_text())
    with pytest.raises(Refused, match="has changed"):
        updated(file, *members)


def test_line_ends_rights_and_links_stay(tmp_path: Path) -> None:
    real, link = tmp_path / "real.yaml", tmp_path / "t.yaml"
    real.write_bytes(b"- name: a # \xc3\xa4\r\n  expect:\r\n    kept:\r\n      - {id: 5, user: x}\r\n")
    real.chmod(0o664)
    link.symlink_to(real)
    assert (
        updated(link)
        == "- name: a # ä\r\n  expect:\r\n    kept:" + "".join(f"\r\n      - {{id: {row}, user: ada}}" for row in range(12)) + "\r\n"
    )
    assert link.is_symlink()
    assert real.stat().st_mode & 0o777 == 0o664


@pytest.mark.parametrize("expected", ["{contains: [{id: 1}], count: 2}", "{contains: [{id: 99}]}", "{files: [k.jsonl]}"])
def test_what_would_say_less_than_before_is_refused(tmp_path: Path, expected: str) -> None:
    file = tmp_path / "t.yaml"
    file.write_text(f"- {{name: a, expect: {{kept: {expected}}}}}\n")
    with pytest.raises(Refused, match="does not know"):
        updated(file)


def test_dead_letters_stay_what_was_said_of_them(tmp_path: Path) -> None:
    file = tmp_path / "t.yaml"
    for before, after in (
        ("{dead: [{reason: x, line: 1}]}", "{dead: [{reason: malformed, line: 2}]}"),
        ("{dead: {orders: [{reason: x}], paid: 1}}", "{dead: {orders: [{reason: malformed}]}}"),
        ("{dead: 2}", "{dead: 1}"),
        ("{}", "{dead: {orders: 1}}"),
    ):
        file.write_text(f"- {{name: a, expect: {before}}}\n")
        (member,) = failed(file, dead=[LETTER])
        assert updated(file, member) == f"- {{name: a, expect: {after}}}\n"
