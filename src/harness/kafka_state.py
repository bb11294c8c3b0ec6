"""The state of the model of the Kafka sink's protocol. All of it is hashable; `kafka_steps` contains the transitions."""

from __future__ import annotations

from typing import NamedTuple

NOBODY, SETTLED = -1, -1


class ModelMarker(NamedTuple):
    """A commit marker. `place` is the position of the Batch's input, and stands for the hash of the input; `rows` is the write receipt: the
    attempt whose rows it names, or `SETTLED`."""

    lineage: int
    number: int
    place: int
    rows: int


class ModelTransaction(NamedTuple):
    """The broker's state of one transactional.id. `owner` has the current epoch. `ending` is committed, but its control record is not in
    the partition of the markers yet."""

    owner: int = NOBODY
    rows: tuple[int, ...] = ()
    markers: tuple[ModelMarker, ...] = ()
    ending: tuple[ModelMarker, ...] = ()


class ModelDriver(NamedTuple):
    """A driver. `at` and `decided` are positions of inputs; `start` is where its lineage began. With `at` below 1 it has not opened its
    lineage yet."""

    at: int
    decided: int
    start: int


class State(NamedTuple):
    """`log` contains the committed rows in order, as (position of the input, attempt), and `markers` the commit markers, without `ending`
    ones. Settled rows, which the marker names exactly, no longer have the name of their attempt."""

    transactions: tuple[ModelTransaction, ...]
    log: tuple[tuple[int, int], ...]
    markers: tuple[ModelMarker, ...]
    attempts: tuple[str, ...]
    drivers: tuple[ModelDriver, ...]


def put(transactions: tuple[ModelTransaction, ...], at: int, own: ModelTransaction) -> tuple[ModelTransaction, ...]:
    """The transactions with `own` at index `at`."""
    return (own,) if len(transactions) == 1 else (*transactions[:at], own, *transactions[at + 1 :])


def settled(markers: tuple[ModelMarker, ...], told: list[ModelMarker]) -> tuple[ModelMarker, ...]:
    """The markers, without the names of rows in those that are among `told`."""
    return tuple(marker._replace(rows=SETTLED) if marker in told else marker for marker in markers)
