"""Steps of the flows of `make demo-console`; two of them are wrong on purpose."""

import time

from scribengin import record

RATES = {"DE": 0.19, "FR": 0.2}


@record
def score(row):
    """A model that takes its time."""
    time.sleep(0.004)
    return {"id": row["id"], "score": (row["amount"] or 0) / 100}


@record
def tax(row):
    """The rate of one country is missing."""
    return {"id": row["id"], "tax": (row["amount"] or 0) * RATES[row["country"]]}


@record
def price(row):
    """An order without an amount is a dead letter."""
    return {"id": row["id"], "country": row["country"], "cents": round(row["amount"] * 100)}
