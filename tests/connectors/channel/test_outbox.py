"""Edges that do not hold their feeder: what waits goes over in order and once, what is dropped is counted."""

import pickle
from dataclasses import dataclass, field

import pytest

from scribengin.connectors.channel.outbox import OutboxSink, left_text, read_left
from scribengin.connectors.contract import BatchId, Decided, Published, Receipt
from scribengin.core.errors import FencedError, Unreachable


@dataclass
class Shelf:
    """A place that may be away, and that takes Batches only behind the one that stands there, as Kafka's does."""

    node: str = "kept"
    away: bool = False
    breaks_behind: bool = False
    """it takes the Batch, and is away before it says so"""
    taken: list = field(default_factory=list)
    told: list = field(default_factory=list)
    discarded: list = field(default_factory=list)
    claimed: bool = False

    def prepare(self, *, owner, lineage, adopt=False):
        self._reach()
        self.claimed = True

    def behind(self, units):
        raise AssertionError("a look at a place that may be away")

    def behind_published(self, lineage):
        return {"units": 0, "after": {"0": self.told[-1] if self.told else -1}}

    def newest_published(self, lineage):
        return self.told[-1] if self.told else -1

    def discard(self, batch):
        self.discarded.append(batch.number)

    def publish(self, decided):
        self._reach()
        assert self.claimed
        number, after = decided.batch.number, decided.behind["after"]["0"]
        newest = self.taken[-1] if self.taken else -1
        if newest not in (after, number):
            raise FencedError(f"{newest} stands there, not {after}")
        if newest != number:
            self.taken.append(number)
        if self.breaks_behind:
            self.breaks_behind, self.away = False, True
            self._reach()
        self.told.append(number)

    def recover(self, decided, *, lineage, before):
        self.kept_from = before

    def audit(self, *, lineage, decided):
        for each in decided:
            there = each.batch.number in self.taken
            yield Published(each.batch.number, sum(r.rows for r in each.receipts) if there else 0, () if there else ("missing",))

    def _reach(self):
        if self.away:
            raise Unreachable("no broker answers")


class Clock:
    seconds = 0.0

    def __call__(self):
        return self.seconds


@pytest.fixture
def clock():
    return Clock()


def batch(number, rows=10, size=100):
    return Decided(
        BatchId("flow", "query", "life", number, 1), f"hash {number}", (Receipt("kept", 0, rows, size, ({"staged": f"{number}"},)),)
    )


def opened(shelf, work, clock, most_bytes=1000):
    sink = OutboxSink(shelf, "kept", work, most_bytes, now=clock)
    sink.prepare(owner="me", lineage="life")
    return sink


def test_batches_wait_while_the_channel_is_away_and_go_over_in_order_before_newer_ones(tmp_path, clock):
    shelf = Shelf()
    sink = opened(shelf, tmp_path, clock)
    sink.publish(batch(0))
    shelf.away = True
    for number in (1, 2, 3):
        sink.publish(batch(number))
    assert shelf.taken == [0]
    assert read_left(tmp_path, "life").batches == 3
    assert "30 rows (300 bytes) wait" in left_text("kept", sink.left()).replace(" B)", " bytes)")
    shelf.away, clock.seconds = False, 100.0
    sink.publish(batch(4))
    assert shelf.taken == [0, 1, 2, 3, 4]
    assert read_left(tmp_path, "life").batches == 0
    said = sink.upkeep()
    assert "unavailable, rows wait" in said[0]
    assert "3 waiting Batches were sent" in said[1]


def test_a_flow_starts_while_the_channel_is_away(tmp_path, clock):
    shelf = Shelf(away=True)
    sink = opened(shelf, tmp_path, clock)
    sink.publish(batch(0))
    shelf.away, clock.seconds = False, 100.0
    sink.upkeep()
    assert shelf.taken == [0]


def test_while_it_is_away_the_channel_is_not_asked_for_every_batch(tmp_path, clock):
    shelf = Shelf(away=True)
    sink = opened(shelf, tmp_path, clock, most_bytes=10**6)
    asked = []
    shelf._reach = lambda: (asked.append(clock.seconds), Shelf._reach(shelf))
    for number in range(20):
        clock.seconds += 0.5
        sink.publish(batch(number))
    assert len(asked) <= 4


def test_more_than_the_spill_holds_waits_at_the_feeder_and_nothing_is_lost(tmp_path, clock):
    shelf = Shelf(away=True)
    sink = opened(shelf, tmp_path, clock, most_bytes=250)
    sink.publish(batch(0))
    sink.publish(batch(1))
    with pytest.raises(Unreachable, match="200 B of at most 250 B"):
        sink.publish(batch(2))
    shelf.away, clock.seconds = False, 100.0
    sink.publish(batch(2))
    assert shelf.taken == [0, 1, 2]


def test_a_batch_of_which_nobody_knows_whether_it_went_through_goes_over_once(tmp_path, clock):
    for most_bytes in (1000, None):
        shelf = Shelf(breaks_behind=True)
        sink = opened(shelf, tmp_path / str(most_bytes), clock, most_bytes=most_bytes)
        sink.publish(batch(0))
        assert (shelf.taken, shelf.told) == ([0], [])
        shelf.away = False
        clock.seconds += 100.0
        sink.publish(batch(1))
        assert (shelf.taken, shelf.told) == ([0, 1], [0, 1])


def test_what_waits_survives_the_driver_and_is_no_leftover(tmp_path, clock):
    shelf = Shelf(away=True)
    first = opened(shelf, tmp_path, clock)
    first.publish(batch(0))
    first.publish(batch(1))
    clock.seconds += 100.0
    shelf.away = False
    second = opened(shelf, tmp_path, clock)
    shelf.away = True
    clock.seconds += 100.0
    second.recover(batch(1), lineage="life", before=2)
    assert shelf.kept_from == 0
    shelf.away, clock.seconds = False, clock.seconds + 100.0
    second.upkeep()
    assert shelf.taken == [0, 1]


@pytest.mark.parametrize("most_bytes", [1000, None])
def test_what_stands_there_as_waiting_though_it_went_over_does_not_go_over_again(tmp_path, clock, most_bytes):
    shelf = Shelf(away=True)
    sink = opened(shelf, tmp_path, clock, most_bytes=most_bytes)
    sink.publish(batch(0))
    file = next((tmp_path / "life/outbox/waiting").iterdir())
    written = file.read_bytes()
    shelf.away, clock.seconds = False, 100.0
    sink.publish(batch(1))
    file.write_bytes(written)  # the machine went dark before the removal was durable
    again = opened(shelf, tmp_path, clock, most_bytes=most_bytes)
    again.upkeep()
    again.publish(batch(2))
    assert shelf.taken == [0, 1, 2]
    assert read_left(tmp_path, "life").batches == 0


def test_an_older_driver_keeps_nothing_that_its_successor_has_handed_over(tmp_path, clock):
    shelf = Shelf()
    older, newer = opened(shelf, tmp_path, clock), opened(shelf, tmp_path, clock)
    for number in range(3):
        newer.publish(batch(number))
    shelf.away = True
    older.publish(batch(1))
    assert read_left(tmp_path, "life").batches == 0


def test_a_driver_that_fails_to_hand_over_what_its_successor_did_meanwhile_keeps_nothing(tmp_path, clock):
    shelf = Shelf()
    older, newer = opened(shelf, tmp_path, clock), opened(shelf, tmp_path, clock)

    def meanwhile():
        shelf._reach = lambda: Shelf._reach(shelf)
        for number in (0, 1):
            newer.publish(batch(number))
        raise Unreachable("the transaction is over")

    shelf._reach = meanwhile
    older.publish(batch(0))
    assert shelf.taken == [0, 1]
    assert read_left(tmp_path, "life").batches == 0


def test_best_effort_drops_and_counts_what_comes_while_the_channel_is_away(tmp_path, clock):
    shelf = Shelf()
    sink = opened(shelf, tmp_path, clock, most_bytes=None)
    sink.publish(batch(0))
    shelf.away = True
    for number in (1, 2, 3):
        sink.publish(batch(number))
    shelf.away, clock.seconds = False, 100.0
    sink.publish(batch(4))
    # nobody knew whether 1 had gone through
    assert shelf.taken == [0, 1, 4]
    assert shelf.discarded == [2, 3], "what was staged of them stays for nobody"
    left = read_left(tmp_path, "life")
    assert (left.dropped_rows, left.dropped_batches, left.batches) == (20, 2, 0)
    assert "20 rows were dropped" in left_text("kept", left)
    audit = list(sink.audit(lineage="life", decided=[batch(number) for number in range(5)]))
    assert sorted(found.number for found in audit) == [0, 1, 2, 3, 4]
    assert not any(found.violations for found in audit)


def test_best_effort_drops_what_the_channel_has_no_room_for(tmp_path, clock):
    shelf = Shelf()
    sink = opened(shelf, tmp_path, clock, most_bytes=None)
    sink.is_full = lambda: "full: 7 rows wait"
    sink.publish(batch(0))
    sink.is_full = lambda: ""
    sink.publish(batch(1))
    assert shelf.taken == [1]
    assert read_left(tmp_path, "life").dropped_rows == 10


def test_a_batch_that_was_dropped_or_waits_is_published_again_without_effect(tmp_path, clock):
    for most_bytes in (1000, None):
        shelf = Shelf(away=True)
        sink = opened(shelf, tmp_path / str(most_bytes), clock, most_bytes=most_bytes)
        for number in (0, 1):
            sink.publish(batch(number))
        before = sink.left()
        sink.publish(batch(1))
        assert sink.left() == before


def test_a_fenced_driver_is_no_channel_that_is_away(tmp_path, clock):
    shelf = Shelf()
    sink = opened(shelf, tmp_path, clock, most_bytes=None)
    shelf.taken.append(7)
    with pytest.raises(FencedError):
        sink.publish(batch(0))


def test_tasks_get_a_copy(tmp_path, clock):
    sink = opened(Shelf(), tmp_path, clock)
    sink.is_full = lambda: ""
    assert pickle.loads(pickle.dumps(sink)).node == "kept"


def test_a_place_is_claimed_again_for_another_lineage(tmp_path):
    shelf = Shelf()
    claims = []
    shelf.prepare = lambda **claim: claims.append((claim["lineage"], claim["adopt"]))
    sink = OutboxSink(shelf, "kept", tmp_path, 1000)
    for lineage, adopt in (("old", False), ("old", False), ("new", True)):
        sink.prepare(owner="me", lineage=lineage, adopt=adopt)
        assert sink.is_claimed
    assert claims == [("old", False), ("new", True)]
