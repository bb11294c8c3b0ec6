"""The three filters as record functions."""


def known(tweet: dict) -> bool:
    return tweet["followers"] is not None and tweet["followers"] > 5000


def hot(tweet: dict) -> bool:
    return tweet["retweets"] is not None and tweet["retweets"] > 500


def tagged(tweet: dict) -> bool:
    return tweet["text"] is not None and "#PresidentialDebate" in tweet["text"]
