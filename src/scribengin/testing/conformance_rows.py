"""Rows that a place never takes, and rows that come with more columns than before."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from scribengin.connectors.abilities import compares_columns, offers
from scribengin.testing.conformance_sinks import batch_id, write_rows
from scribengin.testing.sentences import must

if TYPE_CHECKING:
    from collections.abc import Collection

    from scribengin.connectors.contract import RefusedRow
    from scribengin.core.types import Schema
    from scribengin.testing.conformance_sinks import Row, Rows, SinkTrial


def check_poison(trial: SinkTrial, rows: Rows, poison: Rows) -> None:
    """Rows that the place never takes, each between two of `rows`, in either form in which rows come."""
    must(len(poison) <= len(rows), "check_sink needs as many rows as there are of poison")
    for as_json in (False, True):
        mixed = [row for one, other in zip(rows, poison, strict=False) for row in (one, other)] + [rows[0]]
        wrong = set(range(1, len(mixed), 2))
        try:
            told = _told(trial, mixed, as_json=as_json)
        except Exception as error:
            raise AssertionError(f"the contract is broken: a row that the place never takes is no reason to fail; {error!r}") from error
        must(
            sorted(index for index, _, _ in told) == sorted(wrong),
            f"each row that the place never takes comes back, from `write` or from `offer`, and no other; rows {sorted(wrong)} are wrong, "
            f"what came back: {told}",
        )
        must(all(reason and message for _, reason, message in told), f"a row that comes back has a reason and a message: {told}")
        trial.grows([row for index, row in enumerate(mixed) if index not in wrong], "rows beside one that the place never takes are taken")


def check_wider(trial: SinkTrial, schema: Schema, rows: Rows) -> None:
    """Rows with more columns than those that stand there."""
    new = [name for name in schema.names if name not in trial.schema]
    must(bool(new) and all(row[name] is not None for row in rows for name in new), "check_sink needs rows that fill a new column")
    sink = trial.prepared()
    told = sink.unlike(schema) if compares_columns(sink) else []
    trial.grows([], "`unlike` changes nothing")
    if told:
        must(all(name in " ".join(told) for name in new), f"`unlike` names the columns that the place does not take: {new}, it says {told}")
        return
    number = len(trial.decisions)
    try:
        stream = sink.stream(batch_id(number, 2), 0, "wider", schema)
        refused = write_rows(stream, rows, f"source/{number}-0+", schema, as_json=False)
        decided = trial.decide(number, [stream.close()], term=2)
        trial.decisions.append(decided)
        trial.publish(sink, decided)
    except Exception as error:
        raise AssertionError(
            f"the contract is broken: a sink whose place does not take a new column says so by `unlike`, before a start; it said: {error!r}"
        ) from error
    must(not refused, f"a sink whose place does not take a new column says so by `unlike`, before a start; it refused {refused}")
    wanted, found = Counter(_plain(row, ()) for row in rows), Counter(_plain(row, new) for row in trial.found())
    must(not wanted - found, f"a new column is written, or `unlike` tells that it is not; lost: {list(wanted - found)[:2]}")


def _told(trial: SinkTrial, rows: Rows, *, as_json: bool) -> list[tuple[int, str, str]]:
    """(index, reason, message) of those that came back, behind a publication of the others."""
    sink, number = trial.prepared(), len(trial.decisions)
    label = f"source/{number}-0+"
    stream = sink.stream(batch_id(number, 2), 0, f"poisoned-{as_json}", trial.schema)
    told = [(bad.ordinal, bad.reason, bad.message) for bad in write_rows(stream, rows, label, trial.schema, as_json=as_json)]
    decided = trial.decide(number, [stream.close()], term=2)
    refused: list[RefusedRow] = []
    if offers(sink):
        sink.offer(decided, refused.append)
    decided = replace(decided, refused=len(refused))
    trial.decisions.append(decided)
    sink.publish(decided)
    for refusal in refused:
        must(isinstance(json.loads(refusal.came), dict), f"a Refusal has the row as a JSON object: {refusal}")
        ordinal = refusal.id.removeprefix(label)
        must(ordinal.isdecimal(), f"a Refusal names the row by what it was made of: {refusal}")
        told.append((int(ordinal), refusal.reason, refusal.message))
    return told


def _plain(row: Row, new: Collection[str]) -> str:
    """To compare by; a row that was there before has none of the `new` columns, or nulls there."""
    return repr(sorted((name, value) for name, value in row.items() if value is not None or name not in new))
