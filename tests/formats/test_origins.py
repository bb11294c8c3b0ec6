"""Coordinates of rows: what they are called, joined and taken, and the digest of their set."""

from __future__ import annotations

from hashlib import blake2b

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from scribengin.formats.origins import Origins
from scribengin.formats.row_ids import Hop, is_chosen

A = (Hop("edge", "kept", 3, "h1", 1_700_000_000_000),)
B = (Hop("edge", "kept", 4, "h2", 1_700_000_000_500, "m1"), Hop("core", "all", 9, "h3", 1_700_000_001_000))


def origins_of(rows: list[tuple[str, int, int]]) -> Origins:
    labels = list(dict.fromkeys(label for label, _, _ in rows))
    return Origins(
        labels,
        np.array([labels.index(label) for label, _, _ in rows], np.int32),
        np.array([sequence for _, sequence, _ in rows], np.int64),
        np.array([nth for _, _, nth in rows], np.int32),
        [A] * len(labels),
    )


rows = st.lists(
    st.tuples(
        st.sampled_from(["t/topic-0@", "t/topic-1@", "t/a.jsonl[0:9]+", "ü@"]),
        st.integers(-(2**63), 2**63 - 1) | st.integers(0, 9),
        st.integers(0, 2),
    ),
    unique=True,
    max_size=20,
)


@given(rows, st.randoms(use_true_random=False))
def test_the_digest_does_not_know_the_order_of_rows(found: list[tuple[str, int, int]], random) -> None:
    mixed = random.sample(found, len(found))
    assert origins_of(mixed).digest() == origins_of(found).digest()


@given(rows, st.integers(0, 20), st.integers(0, 20))
def test_the_digest_of_a_whole_is_the_sum_of_its_parts_however_they_are_cut(found: list[tuple[str, int, int]], one: int, two: int) -> None:
    first, second = sorted((min(one, len(found)), min(two, len(found))))
    parts = [origins_of(part) for part in (found[:first], found[first:second], found[second:])]
    whole = origins_of(found)
    assert sum(part.digest() for part in parts) % 2**64 == whole.digest()
    assert Origins.joined(parts).digest() == whole.digest()
    assert sum(whole.taken(range(n, n + 1)).digest() for n in range(len(found))) % 2**64 == whole.digest()


@given(rows, rows)
def test_different_sets_have_different_digests(ours: list[tuple[str, int, int]], theirs: list[tuple[str, int, int]]) -> None:
    assert (origins_of(ours).digest() == origins_of(theirs).digest()) == (set(ours) == set(theirs))


def test_a_lost_a_doubled_and_an_exchanged_row_change_the_digest() -> None:
    found = [("t@", n, 0) for n in range(1000)]
    whole = origins_of(found).digest()
    seen = {whole}
    for changed in (
        found[1:],
        [*found, found[0]],
        [*found[1:], found[1]],
        [*found[1:], ("t@", 0, 1)],
        [*found[1:], ("u@", 0, 0)],
        [*found[1:], ("t@", 1000, 0)],
    ):
        assert origins_of(changed).digest() not in seen
        seen.add(origins_of(changed).digest())


def spelled_out(found: list[tuple[str, int, int]]) -> int:
    """The digest as its definition reads, in Python's numbers."""
    total = 0
    for label, sequence, nth in found:
        mixed = int.from_bytes(blake2b(label.encode(), digest_size=8).digest(), "little")
        mixed = (mixed + sequence * 0x9E3779B97F4A7C15 + nth * 0xD6E8FEB86659FD93) % 2**64
        mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB % 2**64
        total += mixed ^ mixed >> 31
    return total % 2**64


@given(rows)
def test_the_digest_is_the_same_in_every_process_and_version(found: list[tuple[str, int, int]]) -> None:
    assert origins_of(found).digest() == spelled_out(found)


def test_the_digest_of_these_three_rows_is_this_number_for_ever() -> None:
    found = [("tweets/topic-0@", 17, 0), ("tweets/topic-0@", 17, 1), ("tweets/a.jsonl[0:4096]+", 0, 0)]
    assert origins_of(found).digest() == 7245610876580564285


def test_labels_that_no_row_uses_and_trails_do_not_count() -> None:
    zero, five = np.zeros(1, np.int32), np.array([5], np.int64)
    plain = Origins(["t@"], zero, five, zero, [A])
    more = Origins(["u@", "t@"], np.array([1], np.int32), five, zero, [B, B])
    assert plain.digest() == more.digest()


def test_a_row_is_called_by_its_first_coordinates() -> None:
    assert origins_of([("t/topic-0@", 17, 0), ("t/topic-0@", 17, 1)]).ids() == ["t/topic-0@17", "t/topic-0@17.1"]


@given(rows, rows)
def test_joining_keeps_every_row_its_name_and_its_way(ours: list[tuple[str, int, int]], theirs: list[tuple[str, int, int]]) -> None:
    one, two = origins_of(ours), origins_of(theirs)
    two = Origins(two.labels, two.streams, two.sequences, two.nth, [B] * len(two.labels))
    both = Origins.joined([one, two])
    assert both.ids() == one.ids() + two.ids()
    assert [both.trails[stream] for stream in both.streams] == [A] * len(one) + [B] * len(two)


def test_rows_of_one_record_are_numbered_and_keep_apart_what_they_were_before() -> None:
    first = Origins.of("a@", np.array([5, 5, 6, 7, 7, 7])).numbered([5, 5, 6, 7, 7, 7])
    assert first.ids() == ["a@5", "a@5.1", "a@6", "a@7", "a@7.1", "a@7.2"]
    hop = Hop("near", "q", 0, "h", 0)
    arrived = Origins(first.labels, first.streams, first.sequences, first.nth, [(hop,)])
    again = arrived.taken([0, 0, 1, 1, 1]).numbered([0, 0, 1, 1, 1])
    assert len(set(again.ids())) == 5
    assert not set(again.ids()) - {"a@5", "a@5.1"} & set(first.ids())


@given(rows, st.sampled_from([0.0, 0.01, 0.5, 0.999, 1.0]) | st.floats(0, 1), st.sampled_from(["", "kept~", "a~r.big~"]))
def test_one_record_is_chosen_if_it_is_chosen_among_others(found: list[tuple[str, int, int]], share: float, way: str) -> None:
    there = [(f"{way}{label}", sequence, nth) for label, sequence, nth in found] + [("9c0d/4/tweets-0/", 17, 0)]
    assert [i for i, (label, sequence, _) in enumerate(there) if is_chosen(label, sequence, share)] == origins_of(there).chosen(
        share
    ).tolist()
