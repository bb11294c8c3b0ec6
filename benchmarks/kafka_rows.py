"""The records of the Kafka benchmarks, and what is done to them. Made of its number alone, so that every output can be checked.

Rivals run in environments of their own, and a flow takes this file along: only what Python brings is imported.
"""

from __future__ import annotations

from typing import Any

ROW_BYTES = 250
SCHEMA = "id BIGINT, user STRING, amount BIGINT, sent BIGINT, text STRING"
LEAST_AMOUNT = 100
"""nine rows of ten are kept"""

_TEXT = "Watching this with the whole family tonight; that was not what he said last week. " * 4


def encode_row(number: int, sent: int = 0) -> bytes:
    """One record as JSON of 250 bytes; `sent` is a time in nanoseconds, where delays are measured."""
    head = f'{{"id":{number},"user":"user_{number % 50_000:05d}","amount":{amount_of(number)},"sent":{sent},"text":"'
    return f'{head}{_TEXT[: ROW_BYTES - len(head) - 2]}"}}'.encode()


def amount_of(number: int) -> int:
    return number * 7919 % 1000


def kept(number: int) -> bool:
    return amount_of(number) >= LEAST_AMOUNT


def band_of(amount: int) -> str:
    return "high" if amount >= 500 else "low"


def banded(row: dict[str, Any]) -> dict[str, Any] | None:
    """The record step: drops what is small, and adds a column to the rest."""
    amount = row["amount"]
    if amount < LEAST_AMOUNT:
        return None
    row["band"] = band_of(amount)
    return row
