"""What the model of the Kafka sink's protocol knows at one moment. All of it is hashable; `kafka_steps` changes it."""

from __future__ import annotations

from typing import NamedTuple

NOBODY, SETTLED = -1, -1


class ModelMarker(NamedTuple):
    """`place` is where the Batch's input lies, and stands for the input's hash; `rows` is the Receipt: whose rows, or `SETTLED`."""

    lineage: int
    number: int
    place: int
    rows: int


class ModelTransaction(NamedTuple):
    """What the broker holds for one transactional.id. `owner` has the current epoch. `ending` has been committed, but its control
    record is not yet in the markers' partition."""

    owner: int = NOBODY
    rows: tuple[int, ...] = ()
    markers: tuple[ModelMarker, ...] = ()
    ending: tuple[ModelMarker, ...] = ()


class ModelDriver(NamedTuple):
    """`at` and `decided` are places of inputs; `start` is where its lineage began. `at` below 1: it has not opened its lineage."""

    at: int
    decided: int
    start: int


class State(NamedTuple):
    """`log`: the committed rows in order, (place of the input, whose), and `markers`, without `ending` ones. What is settled (the marker
    names just the rows that are there) bears no name any more."""

    transactions: tuple[ModelTransaction, ...]
    log: tuple[tuple[int, int], ...]
    markers: tuple[ModelMarker, ...]
    attempts: tuple[str, ...]
    drivers: tuple[ModelDriver, ...]


def put(transactions: tuple[ModelTransaction, ...], at: int, own: ModelTransaction) -> tuple[ModelTransaction, ...]:
    """With `own` in the place `at`."""
    return (own,) if len(transactions) == 1 else (*transactions[:at], own, *transactions[at + 1 :])


def settled(markers: tuple[ModelMarker, ...], told: list[ModelMarker]) -> tuple[ModelMarker, ...]:
    """Those among `told` lose the name of their rows."""
    return tuple(marker._replace(rows=SETTLED) if marker in told else marker for marker in markers)
