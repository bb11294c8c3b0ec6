"""The tests of benchmarks/utilities.py, the dearest and least selective first."""

import re

WORD = re.compile(r"\w+")
HASHTAG = re.compile(r"#\w+")
RUDE = {"idiot", "liar", "clown", "moron"}


def polite(tweet: dict) -> bool:
    """Keeps nearly all."""
    return RUDE.isdisjoint(WORD.findall(tweet["text"].lower()))


def tagged(tweet: dict) -> bool:
    """Keeps three in ten."""
    return "#PresidentialDebate" in HASHTAG.findall(tweet["text"])


def hot(tweet: dict) -> bool:
    """Keeps one in six."""
    return tweet["retweets"] > 500
