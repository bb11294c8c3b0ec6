"""What a Batch has put into a channel and what was taken of it: the sums of both ends agree, or it is told."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from flow_states import INPUT, Chain, file_entry

from scribengin.formats.contract import Handed
from scribengin.state.channel_acks import Acks, QueryKey
from scribengin.state.channel_checks import mismatch_of, named
from scribengin.state.channel_digests import NOT_WHOLE, sum_taken, taken_of

if TYPE_CHECKING:
    from pathlib import Path

DIGEST = 2**64 - 5


@pytest.fixture(params=["folder", "kafka"])
def chain(tmp_path: Path, request: pytest.FixtureRequest) -> Chain:
    chain = Chain(tmp_path, "ab", kind=request.param)
    chain["a"].digest = DIGEST
    return chain


def put(chain: Chain, number: int) -> None:
    chain["a"].batch({INPUT: file_entry(f"{number}.jsonl")})


def take(chain: Chain, *numbers: int, rows: int = 10, digest: int = DIGEST, skipped: bool = False, **more: Any) -> None:
    assert chain["a"].lineage is not None
    handed = [Handed(chain["a"].lineage.id, number, rows, digest, more.get("unit", -1)) for number in numbers]
    streams = [replace(stream, skipped=skipped) for stream in chain["a"].output(*numbers)]
    chain["b"].batch({"a": streams}, sums={"a": taken_of([*handed, *more.get("beside", ())])})


def test_sums_that_agree_say_nothing(chain: Chain) -> None:
    acks = Acks(chain.topology())
    acks.read()
    for number in range(4):
        put(chain, number)
    take(chain, 0, 1)
    assert acks.read().mismatches == ()
    take(chain, 2, 3)
    assert acks.read().mismatches == ()


@pytest.mark.parametrize(
    ("rows", "digest", "said"),
    [(9, DIGEST, "10 rows were written, but 9 were read"), (10, 7, "10 rows were written, but different rows were read")],
)
def test_rows_that_are_lost_or_exchanged_are_told_with_the_batch(chain: Chain, rows: int, digest: int, said: str) -> None:
    acks = Acks(chain.topology())
    acks.read()
    put(chain, 0)
    put(chain, 1)
    take(chain, 0)
    take(chain, 1, rows=rows, digest=digest)
    (mismatch,) = acks.read().mismatches
    assert (mismatch.channel, mismatch.batch) == ("a_b", 1)
    assert said in str(mismatch)
    assert acks.read().mismatches == ()


def test_a_count_that_was_wrong_is_no_mismatch_where_the_decisions_of_both_ends_agree(chain: Chain) -> None:
    acks = Acks(chain.topology())
    acks.read()
    put(chain, 0)
    put(chain, 1)
    take(chain, 0)
    acks.read()
    (tally,) = acks._tallies.values()
    tally._found[1] = (3, 7)
    take(chain, 1)
    assert acks.read().mismatches == ()


def test_a_batch_is_compared_when_all_of_it_was_taken(chain: Chain) -> None:
    acks = Acks(chain.topology())
    acks.read()
    put(chain, 0)
    assert chain["a"].lineage is not None
    half = Handed(chain["a"].lineage.id, 0, 4, 11)
    chain["b"].batch({}, sums={"a": taken_of([half])})
    assert acks.read().mismatches == ()
    chain["b"].batch({"a": chain["a"].output(0)}, sums={"a": taken_of([Handed(half.lineage, 0, 6, DIGEST - 11)])})
    assert acks.read().mismatches == ()


def test_what_was_under_way_when_the_watch_began_is_not_compared(chain: Chain) -> None:
    put(chain, 0)
    put(chain, 1)
    take(chain, 0)
    acks = Acks(chain.topology())
    acks.read()
    take(chain, 1, rows=1)
    assert acks.read().mismatches == ()


@pytest.mark.parametrize("chain", ["kafka"], indirect=True)  # what goes to a folder is published behind its decision
def test_a_batch_that_was_taken_in_part_before_it_was_decided_is_not_compared_by_who_begins_in_between(
    chain: Chain, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Units commit to a topic by themselves. The feeder is cut off between that and its decision; the reader goes on, notes how it stands,
    and whoever has the lease then begins to watch."""
    put(chain, 0)
    take(chain, 0)
    assert chain["a"].lineage is not None
    unit = Handed(chain["a"].lineage.id, 1, 4, 11, 0)
    chain["b"].batch({}, sums={"a": taken_of([unit])})
    before = Acks(chain.topology())
    before.read()
    before.keep(QueryKey("b", "b"))
    acks = Acks(chain.topology())
    acks.read()
    read_anew = []
    monkeypatch.setattr(
        "scribengin.state.channel_acks.mismatch_of", lambda *given, **more: read_anew.append(given[5]) or mismatch_of(*given, **more)
    )
    put(chain, 1)
    take(chain, 1, rows=6, digest=(DIGEST - 11) % 2**64, unit=1)
    assert acks.read().mismatches == ()
    assert read_anew == [], "there was nothing to look at twice"
    put(chain, 2)
    take(chain, 2, rows=9)
    assert [mismatch.batch for mismatch in acks.read().mismatches] == [2]


def test_a_listing_that_shows_a_later_decision_and_not_an_earlier_one_skips_none(chain: Chain) -> None:
    acks = Acks(chain.topology())
    acks.read()
    for number in range(3):
        put(chain, number)
        take(chain, number)
    late = chain["b"].folder.decisions / "0000000001.json"
    late.rename(late.with_suffix(".late"))
    assert acks.read().mismatches == ()
    late.with_suffix(".late").rename(late)
    assert acks.read().mismatches == ()
    (tally,) = acks._tallies.values()
    assert (tally.reached, tally.through) == (2, 2)


def test_a_reader_that_begins_under_the_watch_is_compared_from_its_first_batch_on(chain: Chain) -> None:
    acks = Acks(chain.topology())
    acks.read()
    for number in range(6):
        put(chain, number)
    for number in range(6):
        take(chain, number, rows=10 if number != 1 else 11)
    assert [mismatch.batch for mismatch in acks.read().mismatches] == [1]


def test_a_reader_of_which_another_process_has_kept_the_beginning_is_no_mismatch(chain: Chain) -> None:
    """What that process has noted saves walking, and so the first Batches are not met here."""
    acks = Acks(chain.topology())
    acks.read()
    put(chain, 0)
    take(chain, 0)
    other = Acks(chain.topology())
    other.read()
    other.keep(QueryKey("b", "b"))
    for number in (1, 2):  # of the second one that process may have met a part, in a topic
        put(chain, number)
        take(chain, number)
        assert acks.read().mismatches == ()
    put(chain, 3)
    take(chain, 3, rows=3)
    assert [mismatch.batch for mismatch in acks.read().mismatches] == [3]


def test_what_was_passed_over_or_was_no_whole_pack_is_told_elsewhere(chain: Chain) -> None:
    acks = Acks(chain.topology())
    acks.read()
    put(chain, 0)
    take(chain, 0, rows=0, digest=0, skipped=True)
    assert acks.read().mismatches == ()
    put(chain, 1)
    take(chain, 1, rows=3, beside=[NOT_WHOLE])
    assert acks.read().mismatches == ()


def test_sums_of_tasks_are_added_by_batch() -> None:
    parts = [
        taken_of([Handed("l", 0, 1, 2**64 - 1), Handed("l", 0, 1, 2), Handed("l", 1, 5, 5, 2)]),
        taken_of([Handed("l", 0, 3, 3), Handed("l", 1, 1, 1, 0)]),
    ]
    assert sum_taken([{"s": parts[0]}, {"s": parts[1]}]) == {"s": {"l": {"0": {"-1": [5, 4]}, "1": {"2": [5, 5], "0": [1, 1]}}}}


def test_the_unit_that_differs_is_named_with_where_the_feeder_has_put_it(chain: Chain) -> None:
    acks = Acks(chain.topology())
    acks.read()
    put(chain, 0)
    take(chain, 0, rows=4, digest=7, unit=0)
    (mismatch,) = acks.read().mismatches
    assert [(unit.unit, unit.put[0], unit.taken[0]) for unit in mismatch.units] == [(0, 10, 4)]
    assert mismatch.taken_by == (0,)
    assert chain["a"].lineage is not None
    place = f"part-0000000000-00000-000{chain['a'].lineage.id[:8]}.packs"
    assert (place if chain.kind == "folder" else "topic a_b, partition 0, offsets 0 to 9") in str(mismatch)


def test_packs_of_a_unit_that_put_nothing_in_are_named_as_such(chain: Chain) -> None:
    acks = Acks(chain.topology())
    acks.read()
    put(chain, 0)
    assert chain["a"].lineage is not None
    foreign = Handed(chain["a"].lineage.id, 0, 3, 3, 7)
    take(chain, 0, unit=0, beside=[foreign])
    (mismatch,) = acks.read().mismatches
    assert [(unit.unit, unit.put, unit.taken) for unit in mismatch.units] == [(7, (0, 0), (3, 3))]
    assert "10 rows were written, but 13 were read" in str(mismatch)


def test_what_comes_again_after_a_batch_was_taken_whole_is_told(chain: Chain) -> None:
    acks = Acks(chain.topology())
    acks.read()
    put(chain, 0)
    take(chain, 0)
    assert acks.read().mismatches == ()
    put(chain, 1)
    assert chain["a"].lineage is not None
    take(chain, 1, beside=[Handed(chain["a"].lineage.id, 0, 10, DIGEST)])
    (mismatch,) = acks.read().mismatches
    assert (mismatch.batch, mismatch.late, mismatch.taken_by) == (0, True, (0, 1))
    assert "10 rows were written, but 20 were read by b/b/a, some of them after the whole Batch had been read" in str(mismatch)


def test_no_more_than_five_places_are_named() -> None:
    assert named([str(number) for number in range(5)]) == "0, 1, 2, 3, 4"
    assert named([str(number) for number in range(1007)]) == "0, 1, 2, 3, 4, and 1,002 more"


def test_units_that_have_committed_by_themselves_are_named_with_their_own_offsets(tmp_path: Path) -> None:
    chain = Chain(tmp_path, "ab", kind="kafka")
    feeder = chain["a"]
    feeder.digest = DIGEST
    said = {"topic": "a_b", "partition": 0, "first": 3, "last": 9, "rows": 10}
    feeder._segments = lambda out, number: ({"slot": 1, "messages": [said]},)  # type: ignore[method-assign]
    acks = Acks(chain.topology())
    acks.read()
    put(chain, 0)
    take(chain, 0, rows=4, unit=0)
    (mismatch,) = acks.read().mismatches
    assert [unit.places for unit in mismatch.units] == [("topic a_b, partition 0, offsets 3 to 9",)]
