import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scribengin.core import numbered_log
from scribengin.core.errors import FencedError, StateError
from scribengin.core.numbered_log import NumberedLog
from scribengin.core.records import seal, unseal

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numbered_log, "CHUNK", 10)


def total(summary: Any | None, bodies: Iterable[Any]) -> int:
    return (summary or 0) + sum(bodies)


def filled(folder: Path, count: int) -> NumberedLog:
    log = NumberedLog(folder, "test")
    for number in range(count):
        log.put(number, number)
    return log


@given(json_values)
def test_a_sealed_record_gives_its_body_back(body: Any) -> None:
    assert unseal(seal("test", 1, body), "test", 1, "here") == body


@given(st.integers(0, 200), st.integers(1, 255))
def test_any_changed_byte_is_noticed(place: int, flip: int) -> None:
    data = bytearray(seal("test", 1, {"rows": 12345, "text": "some words that fill the line"}))
    data[place % len(data)] ^= flip
    with pytest.raises(StateError):
        unseal(bytes(data), "test", 1, "here")


def test_a_torn_a_foreign_and_a_newer_record_are_told_apart() -> None:
    data = seal("test", 1, [1])
    with pytest.raises(StateError, match="is torn"):
        unseal(data[:-3], "test", 1, "here")
    with pytest.raises(StateError, match="is torn"):
        unseal(b"", "test", 1, "here")
    with pytest.raises(StateError, match="holds a test record"):
        unseal(data, "decision", 1, "here")
    with pytest.raises(StateError, match="newer Scribengin"):
        unseal(seal("test", 2, [1]), "test", 1, "here")


def test_the_first_record_of_a_number_stands(tmp_path: Path) -> None:
    assert NumberedLog(tmp_path, "test").put(0, "mine") == "mine"
    assert NumberedLog(tmp_path, "test").put(0, "late") == "mine"
    assert NumberedLog(tmp_path, "test").read(0) == "mine"
    assert NumberedLog(tmp_path, "test").read(1) is None


def test_of_many_writers_one_wins_and_all_hear_of_it(tmp_path: Path) -> None:
    answers: list[int] = []
    start = threading.Barrier(8)

    def write(me: int) -> None:
        start.wait()
        answers.append(NumberedLog(tmp_path, "test").put(3, me))

    threads = [threading.Thread(target=write, args=(me,)) for me in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 8
    assert set(answers) == {NumberedLog(tmp_path, "test").read(3)}


@pytest.mark.usefixtures("small")
def test_folding_changes_no_record(tmp_path: Path) -> None:
    log = filled(tmp_path, 57)
    log.fold(total)
    assert log.high_mark() == 39
    assert log.summary() == (39, sum(range(40)))
    assert len(list(tmp_path.glob("*.json"))) == 17
    assert [log.read(n) for n in range(57)] == list(range(57))
    assert list(NumberedLog(tmp_path, "test").since(33)) == [(n, n) for n in range(33, 57)]
    assert list(log.since()) == [(n, n) for n in range(57)]
    assert log.newest() == 56


@pytest.mark.usefixtures("small")
def test_a_writer_that_slept_through_the_folding_withdraws(tmp_path: Path) -> None:
    log = filled(tmp_path, 30)
    log.fold(total)
    with pytest.raises(FencedError, match="completed long ago"):
        log.put(5, "late")
    assert log.read(5) == 5
    assert not (tmp_path / "0000000005.json").exists()


@pytest.mark.usefixtures("small")
def test_a_folder_that_slept_cannot_take_the_high_mark_back(tmp_path: Path) -> None:
    log = filled(tmp_path, 30)
    slept: list[bool] = []

    def sleep_once(summary: Any | None, bodies: Iterable[Any]) -> int:
        result = total(summary, bodies)
        if not slept:
            slept.append(True)
            other = NumberedLog(tmp_path, "test")
            for number in range(30, 60):
                other.put(number, number)
            other.fold(total)
            assert other.high_mark() == 49
        return result

    log.fold(sleep_once)
    assert log.summary() == (49, sum(range(50)))
    assert list(log.since()) == [(n, n) for n in range(60)]


@pytest.mark.usefixtures("small")
def test_a_late_record_below_the_high_mark_counts_for_nothing(tmp_path: Path) -> None:
    """Its writer was killed between writing and withdrawing."""
    log = filled(tmp_path, 30)
    log.fold(total)
    (tmp_path / "0000000005.json").write_bytes(seal("test", 1, "late"))
    assert log.read(5) == 5
    assert list(log.since(4))[:2] == [(4, 4), (5, 5)]
    for number in range(30, 40):
        log.put(number, number)
    log.fold(total)
    assert not (tmp_path / "0000000005.json").exists()


@pytest.mark.usefixtures("small")
def test_a_missing_or_torn_folded_file_is_told(tmp_path: Path) -> None:
    filled(tmp_path, 30).fold(total)
    chunk = tmp_path / "folded" / "0000000000.json.gz"
    chunk.write_bytes(chunk.read_bytes()[:40])
    with pytest.raises(StateError, match="is torn"):
        NumberedLog(tmp_path, "test").read(3)
    chunk.unlink()
    with pytest.raises(StateError, match="is missing"):
        NumberedLog(tmp_path, "test").read(3)


@pytest.mark.usefixtures("small")
def test_records_that_are_folded_while_somebody_reads_are_read_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, looks = filled(tmp_path, 35), NumberedLog._unfolded

    def folded_just_before(self: NumberedLog, above: int | None = None) -> list[int]:
        monkeypatch.setattr(NumberedLog, "_unfolded", looks)
        filled(tmp_path, 0).fold(total)
        return looks(self, above)

    monkeypatch.setattr(NumberedLog, "_unfolded", folded_just_before)
    assert [number for number, _ in log.since(5)] == list(range(5, 35))
    assert log.high_mark() == 19


@pytest.mark.usefixtures("small")
def test_the_record_before_a_number_is_found_over_gaps_and_in_folded_ones(tmp_path: Path) -> None:
    log = NumberedLog(tmp_path, "test")
    there = [0, 3, 4, 17, 25, 31]
    for number in there:
        log.put(number, number)
    for _ in range(2):
        for number in range(40):
            before = [each for each in there if each < number]
            assert log.newest_below(number) == ((before[-1], before[-1]) if before else None)
        log.fold(total)
    assert log.high_mark() == 19


def awaiting(folder: Path) -> NumberedLog:
    return NumberedLog(folder, "test", awaits=lambda body: "asked" in body)


@pytest.mark.usefixtures("small")
def test_what_came_of_a_record_is_said_once_and_folded_with_it(tmp_path: Path) -> None:
    log = awaiting(tmp_path)
    for number in range(25):
        log.put(number, {"asked": number} if number % 2 else {"number": number})
    assert log.read(3) == {"asked": 3}
    assert log.put_beside(3, {"came": "a"}) == {"asked": 3, "came": "a"}
    assert awaiting(tmp_path).put_beside(3, {"came": "b"}) == {"asked": 3, "came": "a"}
    log.put_beside(5, {"came": "c"})
    log.fold(lambda summary, bodies: [*(summary or []), *bodies])
    assert [log.read(number) for number in (2, 3, 5)] == [{"number": 2}, {"asked": 3, "came": "a"}, {"asked": 5, "came": "c"}]
    assert not list(tmp_path.glob("*.beside.json"))
    with pytest.raises(FencedError, match=r"test 3 in .* was completed long ago"):
        log.put_beside(3, {"came": "d"})
