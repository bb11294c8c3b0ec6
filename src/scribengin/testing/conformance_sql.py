"""Does a database keep what `sql.contract.Database` promises? For the tests of a database of your own; `SqlSink` makes the sink of it.

def test_my_database_keeps_the_contract(tmp_path):
    check_database(lambda table, **options: make_sink(place(tmp_path, table, options)), lambda table: read_my_rows(tmp_path, table))
"""

from __future__ import annotations

import datetime as dt
import json
import math
import pickle
import threading
from contextlib import closing, suppress
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa

from scribengin.connectors.contract import BatchId, Decided, Receipt
from scribengin.core.errors import FencedError, Refused, ScribenginError, StateError
from scribengin.core.types import arrow_schema, parse_schema
from scribengin.testing.conformance import check_sink

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from scribengin.connectors.sql.sink import SqlSink
    from scribengin.core.types import Schema

    Row = Mapping[str, Any]

SCHEMA = parse_schema("id BIGINT NOT NULL, name STRING, v INT")
_CHANGES = parse_schema("id BIGINT, name STRING NOT NULL, v INT, op STRING")
_ODD = 'x"; DROP TABLE kept; --'
_OWNER, _LINEAGE = "conformance", "lineage-1"
_WAITS_S = 1.0
"""how long one who asks for a claim is given to pass by another who holds it"""

_LONG = 70_000
"""more than some types of texts and bytes hold"""
_MOST_SHOWN = 60
_VALUES: Mapping[str, Sequence[Any]] = {
    "BOOLEAN": [True, False],
    "TINYINT": [1, -128, 127],
    "SMALLINT": [1, -(2**15), 2**15 - 1],
    "INT": [1, -(2**31), 2**31 - 1],
    "BIGINT": [1, -(2**63), 2**63 - 1],
    "FLOAT": [0.5, 2.0**-149, (2 - 2.0**-23) * 2.0**127, math.inf, -math.inf, math.nan],
    "DOUBLE": [0.1, 5e-324, 1.7976931348623157e308, math.inf, -math.inf, math.nan],
    "DECIMAL(20,3)": [Decimal("1.125"), Decimal("99999999999999999.999"), Decimal("-99999999999999999.999"), Decimal("0.001")],
    "DECIMAL(38,10)": [Decimal("1.5"), Decimal(f"{'9' * 28}.{'9' * 10}"), Decimal("0.0000000001")],
    "STRING": ["a", "", " ", "a ", "A\0b", "\r\n\\N\t'\"", "a\u0308", "\N{GRINNING FACE}", "x" * _LONG],
    "BINARY": [b"a", b"", b"\0\xff\\", b"\0" * _LONG],
    "DATE": [dt.date(2026, 1, 1), dt.date(1, 1, 1), dt.date(9999, 12, 31), dt.date(1969, 12, 31)],
    "TIMESTAMP": [
        dt.datetime(2026, 1, 1, 12, 0, 0, 123456, dt.UTC),
        dt.datetime(2026, 3, 29, 2, 30, tzinfo=dt.UTC),  # in the hour that summer time skips
        dt.datetime(1969, 12, 31, 23, 59, 59, 999999, dt.UTC),
        dt.datetime(1, 1, 1, tzinfo=dt.UTC),
        dt.datetime(9999, 12, 31, 23, 59, 59, 999999, dt.UTC),
    ],
    "ARRAY<BIGINT>": [[1, 2**53 - 1], []],
    "MAP<STRING, INT>": [{"a": 1}, {}],
    "STRUCT<a: INT, b: STRING>": [{"a": 1, "b": "\N{GRINNING FACE}"}],
}
"""type → a usual value, and values that some databases refuse or change"""


class MakeSink(Protocol):
    """Makes the sink under test: a fresh one for the table of that name, with `mode`, `key`, `version` and `change` as flows give them."""

    def __call__(self, table: str, **options: Any) -> SqlSink:
        """The table is not there at the first call."""


def check_database(make_sink: MakeSink, read_back: Callable[[str], Sequence[Row]]) -> None:
    """All in one database, which holds none of the tables, in some seconds. `read_back` gives the rows that a foreign reader finds in the
    table of that name. Raises AssertionError with the sentence that is broken."""
    rows = [{"id": n, "name": None if n == 2 else f"name {n}", "v": n} for n in range(4)]
    check_sink(lambda: make_sink("added"), lambda: read_back("added"), schema=SCHEMA, rows=rows)
    for check in (
        _check_keys,
        _check_text_keys,
        _check_other_indexes,
        _check_versions,
        _check_changes,
        _check_names,
        _check_types,
        _check_what_is_staged,
    ):
        check(make_sink, read_back)
    _check_first_claims(make_sink)
    _check_later_claims(make_sink, read_back)
    _check_claim_is_locked(make_sink, read_back)


class _Trial:
    def __init__(self, sink: SqlSink, read: Callable[[], Sequence[Row]], schema: Schema) -> None:
        sink.prepare(owner=_OWNER, lineage=_LINEAGE)
        self.sink = sink
        self._read = read
        self._schema = schema
        self._batches = 0

    def stage(self, *units: Sequence[Row]) -> tuple[Decided, list[str]]:
        """The next Batch, and what was refused of each unit: `unit:row message`."""
        batch = BatchId("flow", "query", _LINEAGE, self._batches, 1)
        receipts, refused = list[Receipt](), list[str]()
        for unit, rows in enumerate(units):
            copy: SqlSink = pickle.loads(pickle.dumps(self.sink))
            stream = copy.stream(batch, unit, f"attempt-{batch.number}", self._schema)
            bad = stream.write(pa.RecordBatch.from_pylist([dict(row) for row in rows], schema=arrow_schema(self._schema)))
            refused += [f"{unit}:{each.ordinal} {each.message}" for each in bad]
            receipts.append(stream.close())
        self._batches += 1
        return Decided(batch, f"hash-{batch.number}", tuple(receipts)), refused

    def write(self, *units: Sequence[Row]) -> list[str]:
        """Stage and publish it, twice."""
        decided, refused = self.stage(*units)
        self.sink.publish(decided)
        self.sink.publish(decided)
        return refused

    def sees(self, names: Mapping[Any, Any], sentence: str) -> None:
        """`names`: id → name of each row."""
        found = [(row["id"], row["name"]) for row in self._read()]
        _check(sorted(found) == sorted(names.items()), f"{sentence}; expected {dict(names)}, found {found}")


def _check_keys(make_sink: MakeSink, read_back: Callable[[str], Sequence[Row]]) -> None:
    trial = _Trial(
        make_sink("keyed", mode="upsert", key=("id",)), lambda: read_back("keyed"), parse_schema("id BIGINT, name STRING, v INT")
    )
    refused = trial.write(
        [_row(1, "a"), _row(2, "b"), _row(1, "c"), _row(5, None)],
        [_row(2, "d"), _row(None, "nobody"), *(_row(n, "good") for n in range(20, 25)), _row(None, "no name either")],
    )
    _check(
        [each.partition(" ")[0] for each in refused] == ["1:1", "1:7"],
        f"a row that breaks a rule of the table (no key) is refused by itself, and no other: {refused}",
    )
    good = dict.fromkeys(range(20, 25), "good")
    trial.sees({1: "c", 2: "d", 5: None} | good, "of rows of one key in a Batch the last to come stands, in the order of units and rows")
    trial.write([_row(1, "e"), _row(3, "f")])
    trial.sees({1: "e", 2: "d", 3: "f", 5: None} | good, "a row replaces that of its key, and leaves alone the others")
    trial.write([])
    trial.sees({1: "e", 2: "d", 3: "f", 5: None} | good, "a Batch without rows changes nothing")
    _check(trial.sink.unlike(SCHEMA) == [], "the table that was made is as the flow needs it")
    told = trial.sink.unlike(parse_schema("id STRING, name STRING, more STRING"))
    _check(
        any('"id"' in each for each in told) and any('"more"' in each for each in told),
        f"a column of another type, and a missing one, is reported: {told}",
    )
    without = make_sink("keyed", mode="upsert", key=("name",)).unlike(SCHEMA)
    _check(any("unique index on (name)" in each for each in without), f"a key that the table does not enforce is reported: {without}")


def _check_text_keys(make_sink: MakeSink, read_back: Callable[[str], Sequence[Row]]) -> None:
    """Some databases have no key on texts of any length, or keep `a` and `A` in one row by default."""
    sink, schema = make_sink("texts", mode="upsert", key=("id",)), parse_schema("id STRING, name STRING")
    trial = _Trial(sink, lambda: read_back("texts"), schema)
    keys = ["a", "A", "a ", "ä", "a\u0308", "\N{GRINNING FACE}"]
    refused = trial.write([{"id": key, "name": "first"} for key in keys], [{"id": None, "name": "nobody"}])
    _check([each.partition(" ")[0] for each in refused] == ["1:0"], f"a text can be a key, and only a null one is refused: {refused}")
    sentence = "texts of a key compare by their bytes: case, accents and blanks at the end count"
    trial.sees(dict.fromkeys(keys, "first"), sentence)
    trial.write([{"id": "A", "name": "second"}])
    trial.sees(dict.fromkeys(keys, "first") | {"A": "second"}, sentence)
    _check(trial.sink.unlike(schema) == [], "the table that was made for a text as a key is as the flow needs it")


def _check_other_indexes(make_sink: MakeSink, read_back: Callable[[str], Sequence[Row]]) -> None:
    """A table with a unique index beside its key."""
    sink = make_sink("indexed", mode="upsert", key=("id",))
    trial = _Trial(sink, lambda: read_back("indexed"), SCHEMA)
    trial.write([_row(1, "a", 1), _row(2, "b", 2)])
    database = sink._database
    with closing(database.connect()) as session:
        index, table, column = database.quoted("other_index"), database.quoted(*sink._target.names), database.quoted("v")
        session.execute(f"CREATE UNIQUE INDEX {index} ON {table} ({column})")
    if sink.unlike(SCHEMA):
        return
    with suppress(ScribenginError):  # a table that does not accept a decided row stops the flow
        trial.write([_row(3, "c", 1)])
    trial.sees({1: "a", 2: "b"}, "a row replaces that of its key, and none that is equal in another unique index")


def _check_types(make_sink: MakeSink, read_back: Callable[[str], Sequence[Row]]) -> None:
    columns = {f"c{number}": type_ for number, type_ in enumerate(_VALUES)}
    schema = parse_schema(", ".join(["id BIGINT", *(f"{name} {type_}" for name, type_ in columns.items())]))
    trial = _Trial(make_sink("typed"), lambda: read_back("typed"), schema)
    given = [(name, value) for name, type_ in columns.items() for value in (*_VALUES[type_], None)]
    refused = trial.write([dict.fromkeys(schema.names) | {"id": number, name: value} for number, (name, value) in enumerate(given)])
    lost = {int(each.partition(" ")[0].partition(":")[2]) for each in refused}
    rows = {row["id"]: row for row in read_back("typed")}
    for number, (name, value) in enumerate(given):
        type_, found = columns[name], rows.get(number, {}).get(name, "no row")
        _check(
            number in rows if number not in lost else number not in rows, f"a row is written or refused: {type_} {_short(value)}; {refused}"
        )
        _check(
            number in lost or _is_kept(value, found, single=type_ == "FLOAT"),
            f"a value that the database would change is refused: {type_} {_short(value)} reads back {_short(found)}",
        )
    for name, type_ in columns.items():
        usual = next(number for number, (other, _) in enumerate(given) if other == name)
        _check(usual not in lost, f"values of each type are accepted: {type_} {_short(given[usual][1])} is refused; {refused}")
    _check(trial.sink.unlike(schema) == [], f"the table that was made is as the flow needs it: {trial.sink.unlike(schema)}")


def _is_kept(value: Any, found: Any, *, single: bool) -> bool:
    """Whether `found` is the value, perhaps as a text, or as another type of number. `single`: both mean the nearest float of 32 bits."""
    if value is None or found is None:
        return value is found
    try:
        match value:
            case bool():
                return found in (0, 1) and bool(found) == value
            case int():
                return int(found) == value
            case float():
                kind = np.float32 if single else np.float64
                return bool(kind(found) == kind(value)) or (math.isnan(value) and math.isnan(float(found)))
            case Decimal():
                return Decimal(str(found)) == value
            case dt.datetime():
                at = dt.datetime.fromisoformat(found) if isinstance(found, str) else found
                return (at if at.tzinfo else at.replace(tzinfo=dt.UTC)) == value
            case dt.date():
                return (dt.date.fromisoformat(found) if isinstance(found, str) else found) == value
            case bytes():
                return bytes(found) == value
            case list() | dict():
                return bool((json.loads(found) if isinstance(found, str) else found) == value)
    except (ArithmeticError, AttributeError, TypeError, ValueError):
        return False
    return bool(found == value)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}… ({len(text)} characters)"


def _check_versions(make_sink: MakeSink, read_back: Callable[[str], Sequence[Row]]) -> None:
    trial = _Trial(make_sink("versions", mode="upsert", key=("id",), version="v"), lambda: read_back("versions"), SCHEMA)
    trial.write([_row(1, "newest", 5), _row(1, "older", 4)], [_row(1, "unknown", None), _row(2, "unknown", None)])
    trial.sees({1: "newest", 2: "unknown"}, "of rows of one key the one with the greatest version stands, and null is the least")
    trial.write([_row(1, "late", 3), _row(2, "known", 1)])
    trial.sees({1: "newest", 2: "known"}, "a row of an older version changes nothing, in whatever Batch it comes")
    trial.write([_row(1, "as new", 5)])
    trial.sees({1: "as new", 2: "known"}, "of two of one version the last to come stands")


def _check_changes(make_sink: MakeSink, read_back: Callable[[str], Sequence[Row]]) -> None:
    sink = make_sink("changed", mode="changes", key=("id",), version="v", change="op")
    trial = _Trial(sink, lambda: read_back("changed"), _CHANGES)
    trial.write([_row(n, "new", 1, "INSERT") for n in range(5)])
    refused = trial.write(
        [_row(0, "", 2, "delete"), _row(1, "", 2, "delete"), _row(1, "again", 2, "insert"), _row(4, "", 0, "delete")],
        [_row(2, "changed", 2, "update"), _row(7, "x", 1, "upsert"), _row(9, "", 1, "delete"), _row(3, None, 2, "update")],
    )
    _check(
        [each.partition(" ")[0] for each in refused] == ["1:1", "1:3"],
        f"an unknown change is refused, and a null that may not be: {refused}",
    )
    trial.sees({1: "again", 2: "changed", 3: "new", 4: "new"}, "changes are done in their order, and not by a row of an older version")
    _check("op" not in read_back("changed")[0], "the column that says the change is not written")
    refused = trial.write([_row(3, None, 5, "delete"), _row(2, "late", 1, "update")])
    _check(not refused, f"of a row that is to be deleted the key is enough: {refused}")
    trial.sees({1: "again", 2: "changed", 4: "new"}, "a row is deleted by its key")


def _check_names(make_sink: MakeSink, read_back: Callable[[str], Sequence[Row]]) -> None:
    schema = parse_schema(f"`{_ODD}` STRING, `Select` BIGINT")
    trial = _Trial(make_sink('Ta"ble', mode="upsert", key=("Select",), version=_ODD), lambda: (), schema)
    trial.write([{_ODD: _ODD, "Select": 1}, {_ODD: "a", "Select": 1}])
    found = [dict(row) for row in read_back('Ta"ble')]
    _check(found == [{_ODD: _ODD, "Select": 1}], f"names are quoted, whatever they hold: {found}")


def _check_what_is_staged(make_sink: MakeSink, read_back: Callable[[str], Sequence[Row]]) -> None:
    sink = make_sink("staged")
    trial = _Trial(sink, lambda: read_back("staged"), SCHEMA)
    decided, _ = trial.stage([_row(1, "a")])
    sink.recover(None, lineage=_LINEAGE, before=1)
    _refuses(lambda: sink.publish(decided), StateError, "a decided staging table that is gone stops the flow")
    trial.write([_row(2, "b")])
    _check(sink.clear(owner=_OWNER, flow="flow", dry_run=True) == len(read_back("staged")) == 1, "clear tells first what it would delete")
    _check(sink.clear(owner=_OWNER, flow="flow") == 1 and not read_back("staged"), "clear deletes all rows, and counts them")


def _check_later_claims(make_sink: MakeSink, read_back: Callable[[str], Sequence[Row]]) -> None:
    """A new lineage takes a table over, while a driver of the old one sleeps between its decision and its publishing."""
    trial = _Trial(make_sink("taken"), lambda: read_back("taken"), SCHEMA)
    decided, _ = trial.stage([_row(1, "a")])
    make_sink("taken").prepare(owner=_OWNER, lineage="lineage-2", adopt=True)
    _refuses(lambda: trial.sink.publish(decided), FencedError, "a table that a newer lineage has claimed takes nothing of the older one")
    _refuses(
        lambda: make_sink("taken").prepare(owner=_OWNER, lineage=_LINEAGE), Refused, "a lineage that was taken over does not come back"
    )
    _check(not read_back("taken"), "what is refused writes nothing")


def _check_first_claims(make_sink: MakeSink) -> None:
    """Two writers claim a table without an owner at once."""
    first, second = make_sink("claimed"), make_sink("claimed")
    other = _Other(lambda: second.prepare(owner="another", lineage="lineage-2"))
    looks = first._has_rows

    def look_while_another_comes(session: Any) -> bool:
        other.come()
        return looks(session)

    first._has_rows = look_while_another_comes  # type: ignore[method-assign]
    first.prepare(owner=_OWNER, lineage=_LINEAGE)
    said = other.ended()
    _check(isinstance(said, Refused), f"of two that claim a table for the first time at once one is refused: {said!r}")


def _check_claim_is_locked(make_sink: MakeSink, read_back: Callable[[str], Sequence[Row]]) -> None:
    """A new lineage comes in the midst of a transaction that publishes."""
    trial = _Trial(make_sink("locked"), lambda: read_back("locked"), SCHEMA)
    decided, _ = trial.stage([_row(1, "a")])
    other = _Other(lambda: make_sink("locked").prepare(owner=_OWNER, lineage="lineage-2", adopt=True))
    commits = trial.sink._commits
    notes, waited = commits.note, list[bool]()

    def note_while_another_comes(session: Any, decided: Decided, rows: int) -> None:
        waited.append(other.come())
        notes(session, decided, rows)

    commits.note = note_while_another_comes  # type: ignore[method-assign]
    trial.sink.publish(decided)
    said = other.ended()
    _check(waited == [True] and said is None, f"no writer takes a table over while another one publishes: {said!r}")
    trial.sees({1: "a"}, "who publishes while another one waits for the table is not held up")


class _Other:
    """Another process, as a thread."""

    def __init__(self, act: Callable[[], object]) -> None:
        self._act = act
        self._said: Exception | None = None
        self._thread = threading.Thread(target=self._run)

    def come(self) -> bool:
        """Start, where it has not; True where it has to wait for us."""
        if self._thread.ident is None:
            self._thread.start()
            self._thread.join(_WAITS_S)
        return self._thread.is_alive()

    def ended(self) -> Exception | None:
        """What it has raised, once it is over."""
        self._thread.join()
        return self._said

    def _run(self) -> None:
        try:
            self._act()
        except Exception as error:
            self._said = error


def _row(id_: int | None, name: str | None, v: int | None = None, op: str | None = None) -> dict[str, Any]:
    return {"id": id_, "name": name, "v": v} | ({"op": op} if op else {})


def _refuses(act: Callable[[], object], kind: type[Exception], sentence: str) -> None:
    try:
        act()
    except kind:
        return
    _check(holds=False, sentence=sentence)


def _check(holds: bool, sentence: str) -> None:
    if not holds:
        raise AssertionError(f"the contract is broken: {sentence}")
