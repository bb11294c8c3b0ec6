"""Generates tweets for the demo, the tests and the benchmarks, as JSON lines in the order of time; the same for the same seed.

A million tweets are about 140 MB and take some seconds. Most are ordinary; a few are for testing limits of a flow: exactly 500 retweets or
5,000 followers, and 501 or 5,001; no `ts`; and lines that are not JSON of the declared types.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import numpy.typing as npt

SCHEMA = "id BIGINT, user STRING, text STRING, followers BIGINT, retweets BIGINT, ts TIMESTAMP"
TAG = "#PresidentialDebate"
SEED = 20120
START = np.datetime64("2026-01-01T00:00:00.000", "ms")
SPAN_MS = 24 * 3600 * 1000
"""all tweets of a set are within one day, however many there are"""

_SAYINGS = (
    "Watching this with the whole family tonight",
    "Did anyone else hear that answer?",
    "That was not what he said last week",
    "Best moment of the evening so far",
    "Numbers, please. Just once, numbers",
    "I need more coffee for this",
    "Fact check: mostly true, says the paper",
    "My cat walked out of the room",
    "Two minutes are two minutes, moderator!",
    'She said "never again" and meant it',
    "Great point about schools",
    "Ünser Dorf schaut auch zu, schöne Grüße",
    "この討論会は面白い",
    "Who writes these questions?",
    "Long queue, good weather, nice people here",
    "Back to the studio, and then to bed",
)
_OTHER_TAGS = ("#Economy", "#Ohio", "#Health", "#Schools", "#Vote", "#Coffee", "#Live", "#Weather")
_MALFORMED = (
    '{"id":1,"user":"user_00001","text":"cut off in the mid',
    '{"id":"1","user":"user_00002","text":"the id is a text","followers":1,"retweets":1,"ts":"2026-01-01T00:00:00Z"}',
    '{"id":1,"user":"user_00003","text":"a fraction","followers":6000.5,"retweets":501,"ts":"2026-01-01T00:00:00Z"}',
    "{'id':1,'user':'user_00004','text':'single quotes'}",
    '{"id":1,"user":"user_00005","text":"two in one line"}{"id":2}',
    '{"id":99999999999999999999,"user":"user_00006","text":"out of range","followers":1,"retweets":1,"ts":"2026-01-01T00:00:00Z"}',
    '{"id":1,"user":"user_00007","text":"no such day","followers":6000,"retweets":501,"ts":"2026-02-30T00:00:00Z"}',
    "<html><body>502 Bad Gateway</body></html>",
)


@dataclass(frozen=True, slots=True)
class WrittenTweets:
    """The result of `write_tweets`, to check an output with. `rows` is the number of lines. The ids are those of tweets with
    #PresidentialDebate, more than 5,000 followers and more than 500 retweets: `kept_ids` of those with a `ts`, `undated_ids` of those
    without."""

    rows: int
    bytes: int
    malformed: int
    kept_ids: tuple[int, ...]
    undated_ids: tuple[int, ...]


def write_tweets(folder: Path, *, rows: int, files: int = 8, seed: int = SEED) -> WrittenTweets:
    """Write `tweets-000.jsonl`, … into `folder`, which is created if necessary. Existing files of that name are replaced.

    It needs some hundred MB of memory, however many `rows` there are. Raises ValueError for fewer than one row or file.

    Args:
        folder: The folder.
        rows: The number of lines in all files.
        files: The number of files.
        seed: The seed of the random numbers.
    """
    if rows < 1 or files < 1:
        raise ValueError(f"tweets need at least one row and one file, not {rows} and {files}")
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    followers_of_user = np.minimum(60 * rng.pareto(0.4, 50_000) + 20, 30_000_000).astype(np.int64)
    size = malformed = 0
    kept: list[int] = []
    undated: list[int] = []
    for number in range(files):
        with (folder / f"tweets-{number:03}.jsonl").open("wb") as out:
            for first, count in _chunks(rows * number // files, rows * (number + 1) // files):
                chunk = _Chunk(rng, first, count, rows, followers_of_user)
                size += out.write(chunk.lines())
                malformed += int(chunk.malformed.sum())
                kept += (first + np.flatnonzero(chunk.popular & ~chunk.undated)).tolist()
                undated += (first + np.flatnonzero(chunk.popular & chunk.undated)).tolist()
    return WrittenTweets(rows, size, malformed, tuple(kept), tuple(undated))


def _chunks(start: int, end: int, most: int = 250_000) -> Iterator[tuple[int, int]]:
    for first in range(start, end, most):
        yield first, min(most, end - first)


def _share(usual: float, rows: int) -> float:
    """`usual`, or a larger share in a small set, so that it contains some of these tweets."""
    return max(usual, min(0.02, 5 / rows))


class _Chunk:
    """Consecutive tweets. Ids count from `first`, and times increase from the beginning of the set to its end."""

    def __init__(self, rng: np.random.Generator, first: int, count: int, rows: int, followers_of_user: npt.NDArray[np.int64]) -> None:
        self.ids = np.arange(first, first + count)
        self.users = rng.integers(0, len(followers_of_user), count)
        self.followers = followers_of_user[self.users]
        self.retweets = np.minimum(15 * rng.pareto(0.5, count), 5_000_000).astype(np.int64)
        self.tagged = rng.random(count) < 0.3
        self.sayings = rng.integers(0, len(_SAYINGS), count)
        self.others = rng.integers(0, 3 * len(_OTHER_TAGS), count)
        self.times = START + (self.ids * (SPAN_MS / rows)).astype("timedelta64[ms]")
        rare = rng.random(count)
        self.malformed = rare < _share(0.00005, rows)
        self.undated = self._special(rare, 0.5, _share(0.00005, rows), followers=80_000, retweets=7000)
        for start, followers, retweets in ((0.6, 5000, 9000), (0.7, 5001, 9000), (0.8, 70_000, 500), (0.9, 70_000, 501)):
            self._special(rare, start, _share(0.0001, rows), followers, retweets)
        self.popular = self.tagged & (self.followers > 5000) & (self.retweets > 500) & ~self.malformed

    def _special(self, rare: npt.NDArray[np.float64], start: float, share: float, followers: int, retweets: int) -> npt.NDArray[np.bool_]:
        """Give that share of the tweets the tag and these figures; returns a mask of them."""
        here = (rare >= start) & (rare < start + share)
        self.followers[here] = followers
        self.retweets[here] = retweets
        self.tagged[here] = True
        return here

    def lines(self) -> bytes:
        """The tweets as JSON lines in UTF-8."""
        escaped = [saying.replace('"', '\\"') for saying in _SAYINGS]
        columns = zip(
            self.ids.tolist(),
            self.users.tolist(),
            self.sayings.tolist(),
            self.others.tolist(),
            self.tagged.tolist(),
            self.followers.tolist(),
            self.retweets.tolist(),
            np.datetime_as_string(self.times).tolist(),
            strict=True,
        )
        tags = [f" {tag}" for tag in _OTHER_TAGS] + [""] * (2 * len(_OTHER_TAGS))
        debate = ("", f" {TAG}")
        lines = [
            f'{{"id":{id_},"user":"user_{user:05}","text":"{escaped[saying]}{debate[tagged]}{tags[other]}",'
            f'"followers":{followers},"retweets":{retweets},"ts":"{time}Z"}}'
            for id_, user, saying, other, tagged, followers, retweets, time in columns
        ]
        for index in np.flatnonzero(self.undated).tolist():
            lines[index] = lines[index].partition(',"ts"')[0] + "}"
        for nth, index in enumerate(np.flatnonzero(self.malformed).tolist()):
            lines[index] = _MALFORMED[(int(self.ids[index]) + nth) % len(_MALFORMED)]
        lines.append("")
        return "\n".join(lines).encode()
