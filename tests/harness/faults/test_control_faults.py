"""A slice of `make faults ONLY=control`, and the campaign's own parts: what is to catch a fault must be seen to catch one."""

from __future__ import annotations

import os
import random
import socket
import subprocess
import sys
import threading
import time
from contextlib import closing
from typing import TYPE_CHECKING, Any, cast

import psycopg
import pytest

from harness.faults.control.campaign import CAMPAIGN, choose
from harness.faults.control.feeds import CutFeed, FileFeed, Load, SharedFeed, TableFeed
from harness.faults.control.life import ControlLife, LifeGround, in_order, run_control_life, terms_out_of_order
from harness.faults.control.processes import figures_of, ports_of, processes_with
from harness.faults.control.report import append_life, read_lives, write_lives_report
from harness.faults.control.soak import ProcessSample, trends
from harness.faults.control.strikes import LifeTold, Struck
from harness.faults.control.ways import OF_CUTS, OF_ENSEMBLE, OF_WIRE, ON_SMALL_DISK, WAYS, reader_failing
from harness.faults.control.wire import HOST, ProxyWire
from harness.faults.java import java_settings
from scribengin.connectors.contract import BatchId
from scribengin.embedded.postgres import Postgres
from scribengin.plan.validate import validate_file
from scribengin.state.contract import Decision
from scribengin.state.decisions import Decisions
from scribengin.testing.records import RecordKey, make_record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from harness.faults.control.household import Household


@pytest.mark.long
@pytest.mark.faults
@pytest.mark.timeout(900)
def test_a_file_flow_under_load_outlives_its_worker_and_then_everything(tmp_path: Path) -> None:
    ways = ("worker-killed", "all-killed")
    ground = LifeGround(tmp_path / "life", java_settings(), threading.Event(), limit_s=300.0)
    told = run_control_life(ways, 3, ground, in_order([(way, WAYS[way]) for way in ways]))
    assert told.verdict == "passed", (told.wrong, [str(strike) for strike in told.strikes])
    assert [strike.way for strike in told.strikes] == [*ways]
    assert all(strike.running_s is not None for strike in told.strikes)
    assert told.rows > 0


class Echo:
    """A server that gives back what it gets."""

    def __init__(self) -> None:
        self._socket = socket.create_server((HOST, 0))
        self.port = int(self._socket.getsockname()[1])
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(client,), daemon=True).start()

    def _answer(self, client: socket.socket) -> None:
        with client:
            while part := client.recv(100):
                client.sendall(part)

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


@pytest.fixture
def wire() -> Iterator[ProxyWire]:
    echo = Echo()
    with ProxyWire(lambda: echo.port) as wire:
        yield wire
    echo.close()


def call(wire: ProxyWire) -> socket.socket:
    return socket.create_connection((HOST, wire.port), timeout=60)


def says(client: socket.socket, word: bytes) -> bytes:
    client.sendall(word)
    return client.recv(100)


def test_a_silent_cut_holds_back_what_is_sent_by_whom_it_hits_and_lets_it_pass_when_mended(wire: ProxyWire) -> None:
    with call(wire) as one, call(wire) as other:
        assert says(one, b"a") == b"a"
        mine = one.getsockname()[1]
        wire.cut("silent", lambda port: port == mine)
        assert says(other, b"b") == b"b"
        one.settimeout(0.5)
        with pytest.raises(TimeoutError):
            says(one, b"c")
        wire.mend()
        one.settimeout(10)
        assert one.recv(100) == b"c"


def test_a_refusal_resets_those_who_are_there_and_those_who_come(wire: ProxyWire) -> None:
    with call(wire) as one:
        assert says(one, b"a") == b"a"
        wire.cut("refused", lambda _port: True)
        assert one.recv(100) == b""
        with call(wire) as late:
            assert late.recv(100) == b""
        wire.mend()
        with call(wire) as after:
            assert says(after, b"d") == b"d"


def test_a_process_is_found_by_what_stands_in_its_environment_with_its_ports_and_figures(tmp_path: Path, wire: ProxyWire) -> None:
    words = "import socket, sys; held = socket.create_connection(('127.0.0.1', int(sys.argv[1]))); print(held.getsockname()[1], flush=True)"
    command = [sys.executable, "-c", f"{words}; sys.stdin.read()", str(wire.port)]
    environment = os.environ | {"FAULTS_TEST": str(tmp_path)}
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        port = int(child.stdout.readline())
        (found,) = processes_with("FAULTS_TEST", str(tmp_path))
        assert found.process.pid == child.pid
        assert found.words[-1] == str(wire.port)
        assert ports_of(found.process) == {port}
        figures = figures_of(found.process)
        assert figures["threads"] == 1
        assert figures["open files"] >= 4
        assert 1 < figures["memory MiB"] < 200
        assert child.stdin is not None
        child.stdin.close()
    assert not [*processes_with("FAULTS_TEST", str(tmp_path))]
    assert figures_of(found.process) == {}


def samples(value: Callable[[int], float], what: str = "memory MiB") -> list[ProcessSample]:
    return [ProcessSample(nth * 30.0, "up 1", what, value(nth)) for nth in range(60)]


@pytest.mark.parametrize(
    ("what", "leak"),
    [("memory MiB", lambda nth: 100 + nth), ("threads", lambda nth: 20 + nth // 6), ("records", lambda nth: 40 + nth // 2)],
)
def test_what_grows_all_the_time_is_told(what: str, leak: Callable[[int], float]) -> None:
    (trend,) = trends(samples(leak, what))
    assert not trend.is_flat
    assert "GROWS" in str(trend)


def test_what_grows_at_the_begin_or_peaks_is_flat() -> None:
    (warm,) = trends(samples(lambda nth: 100 + min(nth, 15) * 4))
    (peaks,) = trends(samples(lambda nth: 100 + (nth % 7) * 10 + (200 if nth == 58 else 0)))
    assert warm.is_flat
    assert peaks.is_flat


def test_of_few_samples_nothing_is_said() -> None:
    assert trends(samples(float)[:5]) == []


class Careless(Decisions):
    """Decides whatever was decided before."""

    def _check_order(self, decision: Decision) -> None:
        pass


@pytest.mark.parametrize(("terms", "broken"), [([3, 3, 5], 0), ([3, 5, 3], 1)])
def test_a_decision_under_an_older_term_than_one_before_it_is_found(terms: list[int], broken: int, tmp_path: Path) -> None:
    decisions = Careless(tmp_path / "main" / "kept" / "decisions")
    for number, term in enumerate(terms):
        decisions.decide(Decision(BatchId("filed", "kept", "l", number, term), "h", "p", (), ()))
    assert len(terms_out_of_order(tmp_path)) == broken


def test_a_load_notes_when_the_output_grew_and_its_judge_sees_what_is_lost(tmp_path: Path) -> None:
    feed = FileFeed(tmp_path / "filed", rows=3)
    feed.write()
    out = tmp_path / "filed" / "out"
    out.mkdir()
    with Load([feed], 0.05, time.monotonic) as load:
        deadline = time.monotonic() + 120
        while feed.parts < 3 and time.monotonic() < deadline:
            time.sleep(0.05)
        load.stop_feeding()
        began = time.monotonic()
        for part in sorted((tmp_path / "filed" / "data").glob("part-*")):
            (out / part.name).write_bytes(part.read_bytes())
        while load.first_after(feed, began) is None and time.monotonic() < deadline:
            time.sleep(0.05)
    assert load.first_after(feed, began) is not None
    assert load.wrong == []
    assert not feed.judge()
    (out / "part-00001.jsonl").unlink()
    assert len(feed.judge().lost) == 3


def test_the_longest_silence_is_that_of_an_outage_not_of_a_commit_just_before_or_after(tmp_path: Path) -> None:
    feed = FileFeed(tmp_path)
    load = Load([feed], 1.0, time.monotonic)
    load.grown[feed.name] = [(at, 0) for at in (9.0, 10.2, 31.0, 32.0)]
    assert load.longest_silence_s(feed, 10.0, 33.0) == pytest.approx(20.8)
    assert load.longest_silence_s(feed, 40.0, 100.0) == 60.0


def test_a_campaign_meets_each_way_with_and_without_a_chain_each_on_its_own_ground() -> None:
    lives: list[LifeTold] = []
    for seed in range(20):
        kafka, ways = choose(random.Random(seed), tuple(WAYS), lives)
        assert not (OF_ENSEMBLE & {*ways} and OF_WIRE & {*ways}), "before several ZooKeepers there is no wire to cut"
        assert not ON_SMALL_DISK & {*ways} or {*ways} <= ON_SMALL_DISK
        lives.append(LifeTold(ways, seed, kafka, [Struck(way) for way in ways]))
    met = {(strike.way, life.kafka) for life in lives for strike in life.strikes}
    assert met >= {(way, kafka) for way in WAYS.keys() - ON_SMALL_DISK for kafka in (True, False)} | {("disk-full", False)}


@pytest.mark.parametrize(
    "ways", [("tier-inserted", "worker-killed", "host-killed"), tuple(OF_CUTS), tuple(WAYS)], ids=["three", "cuts", "all"]
)
@pytest.mark.parametrize("strikes", [4, 5, 30])
def test_what_puts_in_a_tier_comes_again_and_takes_it_out(ways: tuple[str, ...], strikes: int) -> None:
    for seed in range(10):
        _, chosen = choose(random.Random(seed), ways, [], strikes)
        assert chosen.count("tier-inserted") % 2 == 0
        assert {*chosen} <= ON_SMALL_DISK or len(chosen) in (strikes, strikes + 1)


def read_feed(folder: Path, server: Postgres | None = None) -> TableFeed:
    return TableFeed(
        folder / "reads", FileFeed(folder / "feeds", name="feeds", rows=3), server or Postgres(folder / "server"), ("h2", "h1")
    )


@pytest.mark.parametrize("kind", ["filed", "shared", "cut", "long", "reads"])
def test_the_flow_of_a_feed_is_valid(tmp_path: Path, kind: str) -> None:
    feeds = {
        "shared": SharedFeed(tmp_path),
        "cut": CutFeed(tmp_path),
        "long": CutFeed(tmp_path, is_long=True),
        "reads": read_feed(tmp_path),
    }
    feed = feeds.get(kind, FileFeed(tmp_path))
    feed.write()
    flow, problems = validate_file(feed.folder / "flow.yaml", {})
    assert flow is not None
    assert [problem for problem in problems if problem.severity == "error"] == []
    assert flow.name == feed.name


def test_a_table_is_seen_as_it_was_while_its_server_is_away_and_judged_by_what_its_feeder_was_given(tmp_path: Path) -> None:
    for each in (tmp_path, *tmp_path.parents[:3]):  # where there are no namespaces the server runs for another user
        each.chmod(each.stat().st_mode | 0o055)
    with Postgres(tmp_path / "server") as server, closing(read_feed(tmp_path, server)) as feed:
        feed.feeder.write()
        feed.feeder.grow()
        assert feed.commits() == 0
        rows = [make_record(RecordKey("run", 0, seq)) for seq in (0, 1, 1)]
        with psycopg.connect(server.uri, autocommit=True) as connection:
            connection.execute(f"CREATE TABLE {feed.name} ({', '.join(f'{name} TEXT' for name in rows[0])})")
            connection.cursor().executemany(
                f"INSERT INTO {feed.name} VALUES ({', '.join(['%s'] * len(rows[0]))})", [[*row.values()] for row in rows]
            )
        assert feed.commits() == 3
        server.kill()
        assert feed.commits() == 3
        server.start()
        assert feed.commits() == 3
        findings = feed.judge()
        assert (findings.lost, findings.doubled) == ([RecordKey("run", 0, 2)], [RecordKey("run", 0, 1)])


class House:
    """Of a campaign: answers commands from a script, and waits for nothing."""

    def __init__(self, reasons: list[str], meanwhile: Callable[[], None]) -> None:
        self.commands: list[str] = []
        self._reasons = reasons
        self._states = [set[str](), {"running"}, {"paused"}]
        self._meanwhile = meanwhile

    def says(self, *words: str) -> dict[str, Any]:
        self.commands.append(words[0])
        return {"status": {"reason": self._reasons.pop(0)}} if words[0] == "status" else {"version": 2}

    def query_states(self, _flow: str) -> set[str]:
        return self._states.pop(0)

    def wait_for(self, what: Callable[[], bool], *_: object) -> None:
        while not what():
            assert self._states, "it waits for what does not come"

    def pause(self, _seconds: float) -> None:
        self._meanwhile()


HELD = "paused: 40KiB wait at reads_feeds.made, which reads kept; reads_feeds is failed since now: broken on purpose"


@pytest.mark.parametrize(("more", "wrong"), [(0, []), (1, [f"feeds went on while its reader failed: {HELD}"])], ids=["rests", "goes on"])
def test_a_reader_is_mended_when_its_feeder_rests_for_it_and_one_that_goes_on_is_found(more: int, wrong: list[str], tmp_path: Path) -> None:
    feed, told = read_feed(tmp_path), LifeTold((), 1)
    for each in (feed.feeder, feed):
        each.write()
    out = tmp_path / "feeds" / "out"
    out.mkdir()
    house = House(
        ["", "slowed to 50%", "paused: its worker is away", HELD, HELD, HELD], lambda: [(out / f"part-{n}").touch() for n in range(more)]
    )
    of_code = next(seed for seed in range(100) if random.Random(seed).random() >= 0.5)
    life = ControlLife(cast("Household", house), [feed], Load([], 1.0, time.monotonic), told, 1.0)
    assert HELD in reader_failing(life, random.Random(of_code))
    assert told.wrong == wrong
    assert house.commands == ["apply", *["status"] * 6, "apply"]
    assert "raise" not in (feed.folder / "steps.py").read_text()
    assert feed.version == 2


def test_lives_are_remembered_and_told_with_their_recoveries(tmp_path: Path) -> None:
    strike = Struck("worker-killed", "jvm", {"filed": 12.0, "chained": 21.0}, 30.0)
    for seed, wrong in ((1, []), (2, ["a row is lost"])):
        append_life(tmp_path, CAMPAIGN, LifeTold(("worker-killed",), seed, True, [strike], wrong, rows=10))
    lives = read_lives(tmp_path, CAMPAIGN)
    assert [life.verdict for life in lives] == ["passed", "failed"]
    text = write_lives_report(tmp_path, CAMPAIGN, WAYS, lives).read_text()
    assert "2 lives: 1 passed, 1 failed. 2 strikes" in text
    assert "| worker-killed | 2 | 16.5 | 21.0 | 30.0 | 30.0 |  |" in text
    assert "WRONG: a row is lost" in text
