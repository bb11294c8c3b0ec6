"""The generator of the demo and the benchmarks: the same for the same seed, and honest about what it wrote."""

import json
from datetime import datetime

import pytest

from harness.tweets import TAG, write_tweets


def lines_of(folder):
    return [line for path in sorted(folder.iterdir()) for line in path.read_text().splitlines()]


def tweets_of(folder):
    """id → tweet of the lines that are whole and of the declared types."""
    tweets = {}
    for line in lines_of(folder):
        try:
            tweet = json.loads(line)
        except ValueError:
            continue
        if (
            isinstance(tweet["id"], int)
            and isinstance(tweet["followers"], int)
            and tweet["id"] < 2**63
            and "no such day" not in tweet["text"]
        ):
            tweets[tweet["id"]] = tweet
    return tweets


@pytest.mark.parametrize(("rows", "files"), [(1, 1), (3, 8), (40_000, 5)])
def test_what_was_written_is_what_is_told(tmp_path, rows, files):
    written = write_tweets(tmp_path, rows=rows, files=files)
    lines = lines_of(tmp_path)
    tweets = tweets_of(tmp_path)
    assert len(lines) == written.rows == rows
    assert len(lines) - len(tweets) == written.malformed
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) == written.bytes
    popular = [t for t in tweets.values() if TAG in t["text"] and t["followers"] > 5000 and t["retweets"] > 500]
    assert sorted(t["id"] for t in popular if "ts" in t) == sorted(written.kept_ids)
    assert sorted(t["id"] for t in popular if "ts" not in t) == sorted(written.undated_ids)


def test_the_set_holds_what_catches_a_careless_flow(tmp_path):
    written = write_tweets(tmp_path, rows=40_000)
    tweets = tweets_of(tmp_path)
    assert written.malformed
    assert written.undated_ids
    tagged = [t for t in tweets.values() if TAG in t["text"]]
    assert {5000, 5001} <= {t["followers"] for t in tagged if t["retweets"] > 500}
    assert {500, 501} <= {t["retweets"] for t in tagged if t["followers"] > 5000}
    times = [datetime.fromisoformat(t["ts"]) for t in tweets.values() if "ts" in t]
    assert times == sorted(times)


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others(tmp_path):
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        write_tweets(tmp_path / name, rows=2000, seed=seed)
    assert lines_of(tmp_path / "a") == lines_of(tmp_path / "b")
    assert lines_of(tmp_path / "a") != lines_of(tmp_path / "c")


def test_no_tweets_cannot_be_asked_for(tmp_path):
    with pytest.raises(ValueError, match="at least one"):
        write_tweets(tmp_path, rows=0)
