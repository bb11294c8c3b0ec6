"""The campaign over Kafka: does its judge see what must not be, and do two of its lives pass? `make faults ONLY=kafka` takes the others."""

import random
from contextlib import closing, suppress

import pytest
from confluent_kafka import Producer

from harness.faults.brokers import Brokers
from harness.faults.cells import AIMS_OF, PLACES_KAFKA_SINK, CellSample, all_cells
from harness.faults.kafka_flows import ROUTES, KafkaFlow
from harness.faults.lives import run_life
from harness.faults.outcomes import Aim, Life
from harness.faults.reader import Sight
from harness.faults.topics import Message, TopicReader, Topics, TopicWatch, watch_topic
from harness.faults.ways import kills_alone
from scribengin.core.faults import POINTS, TRANSACTION_POINTS
from scribengin.testing.records import RecordKey, Records, as_line

pytestmark = [pytest.mark.faults, pytest.mark.timeout(1800)]
ROWS = Records("run", 1, 6).of(0)


@pytest.fixture(scope="module")
def brokers(tmp_path_factory):
    with Brokers(tmp_path_factory.mktemp("brokers")) as started:
        yield started


@pytest.fixture
def flow(brokers, tmp_path):
    flow = KafkaFlow(tmp_path, "tail", "json", False, route="kafka-to-kafka", bootstrap=brokers.cluster().bootstrap)
    flow.make()
    flow.write()
    flow.grow(1)
    flow.close()
    yield flow
    flow.remove()


class Written:
    """A topic of one partition, as its readers find it: those of the first look, and all of them."""

    def __init__(self, rows, later=()):
        self._rows, self._later = list(rows), list(later)

    def take(self, within_s):
        return [Message(0, offset, as_line(row).encode()) for offset, row in enumerate(self._rows)]

    def rest(self):
        begin = len(self._rows)
        return [Message(0, begin + offset, as_line(row).encode()) for offset, row in enumerate(self._later)]


def complaints(at_first, at_last=None, **options):
    watch = TopicWatch(Written(at_first), records=True, **{"may_repeat": False, **options})
    watch.read_new(0)
    watch.finish(Written([], at_first if at_last is None else at_last))
    return " ".join(watch.sight.wrong)


def test_a_reader_is_content_with_whole_messages_that_stay():
    assert complaints(ROWS) == ""


def test_a_reader_sees_a_record_twice_unless_lineages_may_repeat_it():
    assert "stands in 0@0 and in 0@6" in complaints([*ROWS, ROWS[0]])
    assert complaints([*ROWS, ROWS[0]], may_repeat=True) == ""


def test_a_reader_sees_a_wrong_checksum_and_what_is_no_record():
    assert "torn record" in complaints([ROWS[0] | {"body": "other"}])
    assert "without" in complaints([{"run": "run"}])


def test_a_reader_sees_messages_that_go_change_or_come_before_others():
    assert "are gone" in complaints(ROWS, ROWS[:-1])
    assert "are gone, or others" in complaints(ROWS, [ROWS[1], ROWS[0], *ROWS[2:]])
    assert "have come before" in complaints(ROWS, [*ROWS, ROWS[0]])


def copy(flow, *, without=0, twice=0):
    """What the flow would write: every record that went in, in its order."""
    rows = [row for part in range(flow.parts) for row in flow._part(part)]
    Topics(flow.bootstrap).write(flow.topic("kept"), [*rows[: len(rows) - without], *rows[:twice]], 0)


def test_the_judge_takes_a_true_copy_and_finds_what_is_lost_doubled_or_out_of_order(flow):
    assert len(flow.judge().lost) == 60
    copy(flow, without=1)
    assert set(flow.judge().kinds()) == {"lost"}
    flow.begin_lineage()
    assert len(flow.judge().lost) == 60
    copy(flow)
    assert not flow.judge()
    copy(flow, without=59)
    assert set(flow.judge().kinds()) == {"doubled", "reordered"}


def test_the_judge_finds_parts_of_one_partition_that_have_changed_places(flow):
    flow.grow(1)
    topics = Topics(flow.bootstrap)
    for part in (1, 3, 0, 2):  # 0 and 3 came in one partition
        topics.write(flow.topic("kept"), flow._part(part), 0)
    findings = flow.judge()
    assert (findings.kinds(), findings.reordered[0]) == ({"reordered": 1}, RecordKey("run", 0, 0))


def test_the_judge_finds_a_record_that_an_earlier_lineage_wrote_twice(flow):
    copy(flow, twice=1)
    flow.begin_lineage()
    copy(flow)
    assert "lineage 1 has written (part, seq) (0, 0) 2 times" in " ".join(flow.judge().torn)


def test_the_judge_and_a_reader_do_not_take_what_is_not_committed_and_tell_of_it(flow):
    copy(flow, without=1)
    left_open = Producer({"bootstrap.servers": flow.bootstrap, "transactional.id": flow.prefix})
    left_open.init_transactions(60)
    left_open.begin_transaction()
    left_open.produce(flow.topic("kept"), as_line(flow._part(flow.parts - 1)[-1]), partition=0)
    assert left_open.flush(60) == 0
    findings = flow.judge()
    assert len(findings.lost) == 1
    assert "a transaction is left open: kept-0 can be read up to 59 of 60" in findings.torn
    with closing(TopicReader(flow.bootstrap, flow.topic("kept"))) as reader:
        assert reader.ends()[0] == 59
    left_open.abort_transaction(60)
    assert set(flow.judge().kinds()) == {"lost"}


def test_a_reader_in_a_process_of_its_own_reads_to_the_end_before_it_tells(flow):
    reader = watch_topic(flow.bootstrap, flow.topic("kept"), records=True, may_repeat=False)
    copy(flow)
    sight = reader.finish()
    assert (sight.rows, sight.wrong) == (60, [])
    assert isinstance(sight, Sight)


def test_brokers_to_strike_are_lent_to_one_life_at_a_time_and_to_later_ones_unless_the_life_came_to_no_end(tmp_path):
    with Brokers(tmp_path / "brokers") as own:
        with own.apart(3) as three, own.apart(3) as other, own.apart(1) as one:
            assert [each.count for each in (three, other, one)] == [3, 3, 1]
            assert three is not other
        with own.apart(3) as again:
            assert again in (three, other)
        with suppress(RuntimeError), own.apart(1) as broken:
            assert broken is one
            raise RuntimeError
        with own.apart(1) as new:
            assert new is not broken


def test_the_last_of_a_row_of_drivers_is_killed_where_no_recovery_waits_for_that_kill():
    aims = [Aim("kill", "decide.after"), Aim("recovery", "recovery.mid"), Aim("die", "stage.after"), Aim("kill", "commit.before")]
    placed = list(enumerate(aims))
    assert kills_alone(placed) == [placed[3]]
    assert kills_alone(placed[:1]) == [placed[0]]
    assert kills_alone(placed[:3]) == []
    assert kills_alone([]) == []


@pytest.mark.parametrize("way", ["kill", "die", "two", "zombie"])
def test_every_point_of_a_kafka_sink_is_struck(way):
    assert set(PLACES_KAFKA_SINK[way]) == {*POINTS, *TRANSACTION_POINTS} - {"publish.renamed"}  # it renames nothing


def test_every_way_and_point_over_kafka_finds_a_flow_that_can_take_it():
    for route in ROUTES:
        assert {aim for aim, flow in all_cells(route)} == set(AIMS_OF[route])
    assert CellSample([], "lineage@transaction.sent coins").choose(None) is None
    assert CellSample([], "kill@marker.read coins kafka-to-kafka").choose(None) is None
    assert CellSample([], "kill@publish.record.after tail kafka-to-kafka").choose(None) is None
    assert CellSample([], "kill@publish.record.after tail kafka-to-files").choose(random.Random(1)) is not None


@pytest.mark.long
def test_a_driver_killed_within_its_transaction_and_a_zombie_at_its_commit_lose_and_double_nothing(brokers, tmp_path):
    aims = (Aim("kill", "transaction.sent"), Aim("zombie", "transaction.commit.before"))
    outcome = run_life(Life("tail", "kafka-to-kafka", False, aims), 1, tmp_path / "life", limit_s=400, brokers=brokers)
    assert outcome.verdict == "passed", outcome
    assert all(outcome.reached), outcome
    assert outcome.looks > 0
    woken = [step for step in outcome.schedule if step.startswith("the older one wakes")]
    assert len(woken) == 1
    assert "exit 0" not in woken[0]
