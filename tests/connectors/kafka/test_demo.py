"""`make demo-kafka`: what it says is so, and nothing stays behind."""

from __future__ import annotations

import importlib.util
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from scribengin.core.process import within

DEMO = Path(__file__).parents[3] / "examples" / "tweets-kafka" / "demo.py"


@pytest.fixture(scope="module")
def demo() -> Any:
    """The module."""
    spec = importlib.util.spec_from_file_location("tweets_kafka_demo", DEMO)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["tweets_kafka_demo"] = module
    spec.loader.exec_module(module)
    return module


def processes_of(folder: Path) -> list[str]:
    """Those that know the folder, by their arguments or their environment."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            told = (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
        except OSError:
            continue
        if f"{folder}/.demo-".encode() in told:
            found.append(process.name)
    return found


@pytest.mark.long
@pytest.mark.timeout(900)
def test_the_demo_kills_a_run_finds_every_tweet_once_and_leaves_nothing(tmp_path: Path) -> None:
    command = [sys.executable, str(DEMO), "--size", "3000", "--folder", str(tmp_path)]
    said = tmp_path / "said.txt"
    with said.open("wb") as out:
        running = subprocess.Popen(command, cwd=DEMO.parents[2], stdout=out, stderr=out, start_new_session=True)
        try:
            status = running.wait(800)
        finally:
            if running.poll() is None:
                running.send_signal(signal.SIGTERM)
                running.wait(60)
    text = said.read_text()
    assert status == 0, text
    assert "SIGKILL to the driver" in text
    sees = re.search(r"sees ([\d,]+) of ([\d,]+) tweets", text)
    assert sees
    before, every = (int(number.replace(",", "")) for number in sees.groups())
    assert 0 < before < every
    assert f"Exactly once: {every:,} tweets" in text
    assert re.search(rf"rows to topic kept \({every:,} with earlier runs\)$", text, re.MULTILINE), text
    assert not list(tmp_path.glob(".demo-*"))
    if sys.platform == "linux":
        assert within(60, lambda: not processes_of(tmp_path)), processes_of(tmp_path)


@pytest.mark.timeout(300)
def test_a_demo_that_is_ended_early_leaves_nothing_either(tmp_path: Path) -> None:
    command = [sys.executable, str(DEMO), "--size", "3000", "--folder", str(tmp_path)]
    settings = os.environ | {"PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, cwd=DEMO.parents[2], stdout=subprocess.PIPE, env=settings) as running:
        try:
            assert running.stdout
            # a driver starts
            assert any(b"--once" in line for line in running.stdout)
            running.send_signal(signal.SIGTERM)
            running.stdout.read()
            assert running.wait(120) == 143
        finally:
            running.kill()
    assert not list(tmp_path.iterdir())
    if sys.platform == "linux":
        assert within(60, lambda: not processes_of(tmp_path)), processes_of(tmp_path)


@pytest.mark.parametrize(
    ("breach", "told"),
    [
        (lambda after: after[1:], "1 tweets are missing, such as 1"),
        (lambda after: [*after, after[-1]._replace(offset=9)], "1 tweets are there more than once, such as 5"),
        (lambda after: [after[0]._replace(tweet={**after[0].tweet, "text": "b"}), *after[1:]], "1 tweets have another content, such as 1"),
        (lambda after: [after[0]._replace(key="v"), *after[1:]], "1 tweets have another key, such as 1"),
        (lambda after: [after[0], after[2], after[1]], "1 tweets are out of their user's order, such as 3"),
        (lambda after: [*after[:2], after[2]._replace(partition=1)], "1 tweets are out of their user's order, such as 5"),
        (lambda after: [*after, after[-1]._replace(offset=9, tweet={**after[-1].tweet, "id": 6})], "1 tweets were not to be kept"),
        (lambda after: [after[0]._replace(offset=7), *after[1:]], "1 tweets stood elsewhere before, such as 1"),
    ],
)
def test_the_demo_tells_what_is_not_as_it_must_be(demo: Any, breach: Any, told: str) -> None:
    tweets = {id_: {"id": id_, "user": "u", "text": "a", "ts": "2026-01-01T00:00:00.000Z"} for id_ in (1, 3, 5)}
    written = [{**tweet, "ts": "2026-01-01T00:00:00.000000Z"} for tweet in tweets.values()]
    after = [demo.Message(0, offset, "u", tweet) for offset, tweet in enumerate(written)]
    assert demo.differences(tweets, after[:1], after) == []
    assert any(sentence.startswith(told) for sentence in demo.differences(tweets, after[:1], breach(after)))
