"""Workers of a tier find each other, and whoever falls silent holds nobody up."""

from __future__ import annotations

import socket
import stat
import subprocess
import sys
import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, cast

import pytest

from scribengin.core.storage import read_or_none
from scribengin.worker import sharing
from scribengin.worker.sharing import HelperPool, HelpingWorker
from tests.looking import look_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from scribengin.spark.portions import Helper, Portion


class Doubling:
    """Stands for a Stager: a portion is a number here, and staged it is twice that; 13 fails, 0 waits until it is cancelled."""

    def __init__(self) -> None:
        self.digests = {"kept": "same"}
        self.cancelled = threading.Event()

    def stage(self, portion: Any) -> Any:
        if portion == 13:
            raise ValueError("unlucky")
        if portion == 0:
            assert self.cancelled.wait(60)
            raise RuntimeError("cancelled")
        return portion * 2

    def cancel(self) -> None:
        self.cancelled.set()


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[HelperPool]:
    shop = HelperPool(tmp_path / "core")
    yield shop
    shop.close()


class Helping:
    """An assistant in a thread."""

    def __init__(self, tier: Path) -> None:
        self.stager = Doubling()
        self.stop = threading.Event()
        self.assistant = HelpingWorker(tier, cast("Any", self.stager))
        self.thread = threading.Thread(target=self.assistant.help, args=(self.stop,))
        self.thread.start()

    def end(self) -> None:
        self.stop.set()
        self.stager.cancel()
        self.thread.join()


@pytest.fixture
def helping(tmp_path: Path) -> Iterator[Helping]:
    with ExitStack() as stack:
        helping = Helping(tmp_path / "core")
        stack.callback(helping.end)
        yield helping


def taken(shop: HelperPool) -> Helper:
    found: list[Helper] = []

    def look() -> bool:
        found.extend(shop.take("kept", "same"))
        return bool(found)

    look_until(look, "no helper", 60)
    (helper,) = found
    return helper


def portion(number: int) -> Portion:
    return cast("Portion", number)


def test_a_helper_stages_what_it_is_handed_one_after_the_other(shop: HelperPool, helping: Helping) -> None:
    helper = taken(shop)
    for number in (21, 4):
        helper.begin(portion(number))
        assert cast("Any", helper.answer()) == number * 2
    assert helping.assistant.staged == 2


def test_one_that_is_taken_is_nobody_elses_until_it_is_dropped(shop: HelperPool, helping: Helping) -> None:
    assert helping.thread.is_alive()
    helper = taken(shop)
    assert shop.take("kept", "same") == []
    helper.drop()
    assert shop.take("kept", "same") == [helper]


def test_one_that_runs_another_plan_is_not_asked(shop: HelperPool, helping: Helping) -> None:
    assert helping.thread.is_alive()
    taken(shop).drop()
    assert shop.take("kept", "other") == []
    assert shop.take("another", "same") == []


def test_what_fails_at_a_helper_is_no_answer_and_it_helps_on(shop: HelperPool, helping: Helping) -> None:
    assert helping.thread.is_alive()
    helper = taken(shop)
    helper.begin(portion(13))
    assert helper.answer() is None
    helper.begin(portion(3))
    assert cast("Any", helper.answer()) == 6


def test_one_that_is_dropped_at_work_stops_it_and_comes_back(shop: HelperPool, helping: Helping) -> None:
    helper = taken(shop)
    helper.begin(portion(0))
    helper.drop()
    assert helping.stager.cancelled.wait(60)
    assert taken(shop) is not helper


def test_one_that_was_killed_is_no_answer(shop: HelperPool, tmp_path: Path) -> None:
    code = (
        "import sys, threading, time; from pathlib import Path; from scribengin.worker.sharing import HelpingWorker\n"
        "class Sleeping:\n"
        "    digests = {'kept': 'same'}\n"
        "    def stage(self, portion): print('staging', flush=True); time.sleep(600)\n"
        "HelpingWorker(Path(sys.argv[1]), Sleeping(), 'core-2').help(threading.Event())"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "core")], stdout=subprocess.PIPE, text=True) as process:
        try:
            helper = taken(shop)
            helper.begin(portion(1))
            assert process.stdout is not None
            assert process.stdout.readline() == "staging\n"
        finally:
            process.kill()
    assert helper.answer() is None
    look_until(lambda: not len(shop), "it is still counted", 60)


def test_one_that_leaves_with_nothing_to_do_is_not_counted_any_more(shop: HelperPool, helping: Helping) -> None:
    taken(shop).drop()
    assert len(shop) == 1
    helping.end()
    look_until(lambda: not len(shop), "it is still counted", 60)


def test_one_that_says_nothing_is_left(shop: HelperPool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As one that is stopped: its connection stands, and nothing comes."""
    monkeypatch.setattr(sharing, "SILENT_S", 1.0)
    stager = Doubling()
    assistant = HelpingWorker(tmp_path / "core", cast("Any", stager))
    said = read_or_none(tmp_path / "core" / "workers.json")
    assert said is not None
    connection = assistant._connected(said)
    assert connection is not None
    helper = taken(shop)
    helper.begin(portion(1))
    assert helper.answer() is None
    assert not len(shop)


def test_who_does_not_know_the_key_is_no_helper(shop: HelperPool, tmp_path: Path) -> None:
    said = read_or_none(tmp_path / "core" / "workers.json")
    assert said is not None
    host, port = shop._socket.getsockname()
    with socket.create_connection((host, port)) as stranger:
        stranger.sendall(b"\0\0\0\x20" + b"x" * 32)
        stranger.settimeout(60)
        while stranger.recv(4096):
            pass
    assert not len(shop)


def test_the_key_is_for_this_user_alone(shop: HelperPool, tmp_path: Path) -> None:
    assert not len(shop)
    assert stat.S_IMODE((tmp_path / "core" / "workers.json").stat().st_mode) == 0o600


def test_a_helper_goes_over_to_who_holds_the_lease_next(shop: HelperPool, helping: Helping, tmp_path: Path) -> None:
    assert helping.thread.is_alive()
    taken(shop).drop()
    following = HelperPool(tmp_path / "core")
    try:
        assert taken(following)
        look_until(lambda: not shop.take("kept", "same"), "it helps both", 60)
    finally:
        following.close()
