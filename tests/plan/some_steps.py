"""Functions for flows that are checked and planned, never run."""

from scribengin import batch, frame


def one(row):
    return row


def tests(row) -> bool:
    return row["id"] > 1


@batch
def many(rows):
    return rows


@frame
def whole(df):
    return df
