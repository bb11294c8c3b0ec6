"""The Python steps of flow.yaml: plain functions, one record in, one answer out."""

import re

from scribengin import record

HASHTAG = re.compile(r"#\w+")


@record
def has_tag(tweet: dict) -> bool:
    """Keep the tweets about the debate."""
    return "#PresidentialDebate" in tweet["text"]


@record
def hashtags(tweet: dict) -> list[dict]:
    """One row for each different hashtag of a tweet."""
    return [{"ts": tweet["ts"], "hashtag": hashtag} for hashtag in sorted(set(HASHTAG.findall(tweet["text"])))]
