"""Functions for flows that are checked and planned, never run."""

from scribengin import batch, frame


def one(row):
    return row


@batch
def many(rows):
    return rows


@frame
def whole(df):
    return df
