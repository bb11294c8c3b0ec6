"""Converts rows to messages (topic, partition, key, value, headers, time), one batch of rows at a time."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import repeat
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from scribengin.core.errors import EnvironmentFault, SinkError
from scribengin.core.types import Schema
from scribengin.formats.contract import Bad
from scribengin.formats.json_out import plain_texts
from scribengin.formats.messages import value_encoder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from scribengin.connectors.kafka.topics import TargetTopic, TopicBook
    from scribengin.formats.avro_out import AvroMessages


# The partition of a key. It is the same as with the JVM clients, so that equal keys written by other programs are in the same partition.


_M = np.uint32(0x5BD1E995)
_SEED = np.uint32(0x9747B28C)


def partitions_of(keys: pa.BinaryArray, count: int) -> NDArray[np.int32]:
    """The partition of each key among `count` partitions, computed for all keys at once; the result for a null key has no meaning.

    The algorithm is `murmur2`, made positive, modulo the count: org.apache.kafka.common.utils.Utils and BuiltInPartitioner.partitionForKey
    of kafka-clients.
    """
    return ((murmur2(keys) & np.uint32(0x7FFFFFFF)) % np.uint32(count)).astype(np.int32)


def murmur2(keys: pa.BinaryArray) -> NDArray[np.uint32]:
    """The 32-bit hash of each key; for null, that of an empty one.

    >>> import pyarrow as pa
    >>> [int(h) for h in murmur2(pa.array([b"21", b"foobar"])).view(np.int32)]
    [-973932308, -790332482]
    """
    offsets = np.frombuffer(keys.buffers()[1], np.int32)[keys.offset : keys.offset + len(keys) + 1].astype(np.int64)
    starts, lengths = offsets[:-1], np.diff(offsets)
    data = np.frombuffer(keys.buffers()[2], np.uint8) if keys.buffers()[2] is not None else np.zeros(0, np.uint8)
    data = np.concatenate([data, np.zeros(4, np.uint8)])
    with np.errstate(over="ignore"):
        hashes = _SEED ^ lengths.astype(np.uint32)
        words = lengths // 4
        for nth in range(int(words.max(initial=0))):
            there = np.nonzero(words > nth)[0]
            k = _word(data, starts[there] + 4 * nth) * _M
            k = (k ^ (k >> np.uint32(24))) * _M
            hashes[there] = (hashes[there] * _M) ^ k
        rest = lengths % 4
        there = np.nonzero(rest)[0]
        left = _word(data, starts[there] + 4 * words[there]) & np.uint32(0xFFFFFFFF) >> (32 - 8 * rest[there]).astype(np.uint32)
        hashes[there] = (hashes[there] ^ left) * _M
        hashes = (hashes ^ (hashes >> np.uint32(13))) * _M
        return hashes ^ (hashes >> np.uint32(15))


def _word(data: NDArray[np.uint8], at: NDArray[np.int64]) -> NDArray[np.uint32]:
    """The four bytes at each position, as a little-endian number."""
    b = [data[at + nth].astype(np.uint32) for nth in range(4)]
    word: NDArray[np.uint32] = b[0] | b[1] << np.uint32(8) | b[2] << np.uint32(16) | b[3] << np.uint32(24)
    return word


ID_HEADER = "scribengin"
"""the header `flow@version source coordinates`: the origin of a message, the same each time the message is produced"""
_COLUMN = re.compile(r"\{([^{}]*)\}")
_MESSAGE_HEAD_BYTES = 128
"""upper bound of the overhead of a message and its batch, in addition to key, value and headers"""
_WHOLE = ("TINYINT", "SMALLINT", "INT", "BIGINT")


@dataclass(slots=True)
class Outgoing:
    """Messages in the order of their rows. All lists have the same length."""

    topics: list[str]
    partitions: NDArray[np.int32]
    keys: list[bytes | None]
    values: list[bytes | None]
    times_ms: list[int]
    """milliseconds since 1970; 0 for the time of writing"""
    ids: list[str] | None
    """values of the id header; None if messages have no such header"""
    headers: Mapping[str, list[bytes | None]]
    """other headers"""
    sizes: list[int] | None = None
    """the number of rows in each message; None if each has one row"""
    digest: int | None = None
    """the digest of the row ids, for messages of a channel"""

    def __len__(self) -> int:
        return len(self.values)

    def rows_inside(self) -> int:
        """The number of rows in all messages."""
        return len(self) if self.sizes is None else sum(self.sizes)

    def rows(self, tells: Mapping[int, Any]) -> Iterator[tuple[str, bytes | None, bytes | None, int, Any, None, int, Any]]:
        """The arguments of `Producer.produce` for each message. `tells` maps indexes of messages to their delivery callbacks; other
        messages have none."""
        heard: list[Any] = [None] * len(self)
        for index, tell in tells.items():
            heard[index] = tell
        none: Any = repeat(None)
        headers = none if self.ids is None and not self.headers else self.header_lists()
        columns = (self.topics, self.values, self.keys, self.partitions.tolist(), heard, none, self.times_ms, headers)
        return zip(*columns, strict=False)

    def header_lists(self) -> Iterator[list[tuple[str, Any]]]:
        """The headers of each message. All are returned in the same list, which must be read before the next one is requested: a list for
        each message would cost more than all other work on it."""
        headers: list[Any] = [None] * (len(self.headers) + (self.ids is not None))
        if not headers:
            yield from repeat(headers, len(self))
        elif not self.headers:
            for id_ in self.ids or ():
                headers[0] = (ID_HEADER, id_)
                yield headers
        else:
            columns = [self.ids, *self.headers.values()] if self.ids is not None else list(self.headers.values())
            names = [ID_HEADER, *self.headers] if self.ids is not None else list(self.headers)
            for values in zip(*columns, strict=True):
                headers[:] = zip(names, values, strict=True)
                yield headers

    def selected(self, stay: list[int]) -> Outgoing:
        """The messages at these indexes."""
        topics, times = [self.topics[index] for index in stay], [self.times_ms[index] for index in stay]
        keys, values = [self.keys[index] for index in stay], [self.values[index] for index in stay]
        ids = None if self.ids is None else [self.ids[index] for index in stay]
        headers = {name: [values[index] for index in stay] for name, values in self.headers.items()}
        sizes = None if self.sizes is None else [self.sizes[index] for index in stay]
        return Outgoing(topics, self.partitions[stay], keys, values, times, ids, headers, sizes)

    def size_bytes(self) -> int:
        """The total size of keys and values, in bytes."""
        return sum(map(len, filter(None, self.values))) + sum(map(len, filter(None, self.keys)))

    def spread(self) -> dict[tuple[str, int], tuple[int, int, int]]:
        """(topic, partition) → (index of its first message, index of its last message, number of rows in its messages)."""
        codes, names = self._codes()
        if not len(codes):
            return {}
        order = np.argsort(codes, kind="stable")
        starts = np.flatnonzero(np.diff(codes[order], prepend=codes[order[0]] - 1))
        ends = np.append(starts[1:], len(codes))
        rows = ends - starts if self.sizes is None else np.add.reduceat(np.array(self.sizes)[order], starts)
        parts = zip(codes[order[starts]].tolist(), order[starts].tolist(), order[ends - 1].tolist(), rows.tolist(), strict=True)
        return {(names[code >> 32], code & 0xFFFFFFFF): (first, last, size) for code, first, last, size in parts}

    def _codes(self) -> tuple[NDArray[np.int64], list[str]]:
        names = list(dict.fromkeys(self.topics))
        if len(names) == 1:
            return self.partitions.astype(np.int64), names
        numbers = {name: number for number, name in enumerate(names)}
        return np.array([numbers[topic] for topic in self.topics], np.int64) << 32 | self.partitions, names


class MessageMaker:
    """Makes the messages of one sink from its rows. Raises SinkError for options that do not match the schema.

    Args:
        node: The id of the sink, for messages.
        options: The complete options of the sink.
        schema: The columns of the rows.
        topics: Looks up the topics.
        version: `flow@version`, for the id header.
        unit: The number of the task output, which determines the partition of rows without a key.
        avro: Creates the encoder for Avro values; see `value_encoder`.

    Attributes:
        wants_ids: True if messages have the id header, which needs the row ids.
    """

    def __init__(
        self,
        node: str,
        options: Mapping[str, Any],
        schema: Schema,
        topics: TopicBook,
        version: str,
        unit: int,
        avro: Callable[[Schema], AvroMessages] | None = None,
    ) -> None:
        self._node = node
        self._topics = topics
        self._unit = unit
        self._template: str = options["topic"]
        self._named = _COLUMN.findall(self._template)
        self._key: str | None = options["key"]
        self._headers: dict[str, str] = dict(options["headers"])
        self._timestamp: str | None = options["timestamp"]
        self._id_begin = f"{version} " if options["record_id"] == "header" else None
        self.wants_ids = self._id_begin is not None
        self._check_columns(schema)
        given = tuple(options["columns"]) or tuple(name for name in schema.names if name not in self._headers.values())
        if not options["columns"] and options["format"] in ("text", "binary"):
            given = tuple(name for name in given if name not in (self._key, self._timestamp, *self._named)) or given
        self._value_columns = list(given)
        try:
            self._values = value_encoder(options["format"], Schema(tuple(schema[name] for name in given)), options, avro)
        except (ValueError, KeyError) as error:
            raise self._wrong(f"{error}", "name the value's columns: columns: [NAME]") from error
        self._partition = None if options["partition"] is None else PartitionExpression(node, options["partition"], schema)
        plain = options["format"] == "json" and self._partition is None and list(given) == list(schema.names)
        beside = [*self._named, *self._headers.values(), *filter(None, (self._key, self._timestamp))]
        self.json_needs: Sequence[str] | None = list(dict.fromkeys(beside)) if plain else None
        """see the contract's JsonStream; an expression for the partition requires all columns"""
        self._fixed = None if self._named else topics.get(self._template)

    def _check_columns(self, schema: Schema) -> None:
        asked: list[tuple[str, str, tuple[str, ...]]] = [("topic", name, ("STRING", *_WHOLE)) for name in self._named]
        asked += [("headers", name, ("STRING", "BINARY", *_WHOLE)) for name in self._headers.values()]
        if self._key is not None:
            asked.append(("key", self._key, ("STRING", "BINARY", *_WHOLE)))
        if self._timestamp is not None:
            asked.append(("timestamp", self._timestamp, ("TIMESTAMP",)))
        for option, name, types in asked:
            if name not in schema:
                raise self._wrong(
                    f'{option} names the column "{name}", which the rows do not have; they have {", ".join(schema.names)}', ""
                )
            if schema[name].type.name not in types:
                raise self._wrong(f'{option} names the column "{name}", a {schema[name].type}', f"expected {' or '.join(types)}")

    def make(self, rows: pa.RecordBatch, ids: Sequence[str] | None) -> tuple[Outgoing, list[Bad]]:
        """Convert rows to messages; returns the messages that can be sent and the errors of the other rows, by their index."""
        values, unfit = self._values(rows.select(self._value_columns))
        numbers = None if self._partition is None else self._partition(rows)
        return self._made(dict(zip(rows.schema.names, rows.columns, strict=True)), values, unfit, numbers, ids)

    def make_json(self, lines: bytes, rows: int, columns: Mapping[str, pa.Array], ids: Sequence[str] | None) -> tuple[Outgoing, list[Bad]]:
        """Do the same for rows in JSON form.

        Args:
            lines: The rows as JSON objects, one per line.
            rows: The number of rows.
            columns: The columns of `json_needs`.
            ids: The row ids; None unless `wants_ids`.
        """
        values: list[bytes | None] = list(lines.split(b"\n"))
        return self._made(columns, values[:rows], (), None, ids)

    def _made(
        self,
        columns: Mapping[str, pa.Array],
        values: list[bytes | None],
        unfit: Sequence[Bad],
        numbers: list[int | None] | None,
        ids: Sequence[str] | None,
    ) -> tuple[Outgoing, list[Bad]]:
        rows = len(values)
        bad: dict[int, Bad] = {}
        names = self._topic_names(columns, rows, bad)
        known = {name: self._find(name) for name in set(names)} if self._fixed is None else {self._template: self._fixed}
        keys = self._bytes(columns[self._key]) if self._key is not None else pa.nulls(rows, pa.binary())
        for each in unfit:
            bad.setdefault(each.ordinal, each)
        partitions = self._partitions(numbers, names, known, keys, bad)
        times = [0] * rows if self._timestamp is None else _milliseconds(columns[self._timestamp])
        named = None if self._id_begin is None or ids is None else [self._id_begin + id_ for id_ in ids]
        headers = {header: self._bytes(columns[column]).to_pylist() for header, column in self._headers.items()}
        made = Outgoing(names, partitions, keys.to_pylist(), values, times, named, headers)
        self._refuse(made, known, bad)
        if not bad:
            return made, []
        return made.selected([index for index in range(rows) if index not in bad]), [bad[index] for index in sorted(bad)]

    # --- topics ---

    def _topic_names(self, columns: Mapping[str, pa.Array], rows: int, bad: dict[int, Bad]) -> list[str]:
        if self._fixed is not None:
            return [self._template] * rows
        parts: list[Any] = []
        rest = self._template
        for name in self._named:
            before, _, rest = rest.partition("{" + name + "}")
            parts += [before, plain_texts(columns[name])]
        names = pc.binary_join_element_wise(*parts, rest, "").to_pylist()
        for index, name in enumerate(names):
            if name is None:
                column = next(each for each in self._named if columns[each][index].as_py() is None)
                bad[index] = Bad(index, "no-topic", f'the topic is "{self._template}", and "{column}" is null')
                names[index] = ""
        return names  # type: ignore[no-any-return]

    def _find(self, name: str) -> TargetTopic | str:
        """The topic of that name, or the reason why it cannot be used."""
        if not name:
            return ""
        try:
            return self._topics.find(name) or f'there is no topic "{name}"'
        except ValueError as error:
            return str(error)

    # --- partitions ---

    def _partitions(
        self,
        numbers: list[int | None] | None,
        names: list[str],
        known: Mapping[str, TargetTopic | str],
        keys: pa.Array,
        bad: dict[int, Bad],
    ) -> NDArray[np.int32]:
        """Choose the partition of each row, and add rows for which that is impossible to `bad`.

        Args:
            numbers: The results of the partition expression; None if there is no expression.
            names: The topic of each row.
            known: Topic name → topic, or the error.
            keys: The keys.
            bad: Index → error of a row.
        """
        counts = {name: topic.partitions for name, topic in known.items() if not isinstance(topic, str)}
        width: Any = counts[self._template] if self._fixed is not None else np.array([counts.get(name, 1) for name in names], np.int64)
        if numbers is not None:
            for index, number in enumerate(numbers):
                most = int(width if self._fixed is not None else width[index])
                if number is None or not 0 <= number < most:
                    found = "null" if number is None else str(number)
                    bad.setdefault(index, Bad(index, "no-partition", f"`partition` gives {found}; expected 0 up to below {most}"))
                    numbers[index] = 0
            return np.array(numbers, np.int32)
        # rows without a key stay together and in order: each task output has one partition
        alone = np.full(len(names), self._unit % width, np.int32) if self._fixed is not None else (self._unit % width).astype(np.int32)
        if self._key is None:
            return alone
        if self._fixed is not None:
            hashed = partitions_of(keys, int(width))
        else:
            hashed = np.zeros(len(names), np.int32)
            for count in set(counts.values()):
                hashed = np.where(width == count, partitions_of(keys, count), hashed)
        return hashed if not keys.null_count else np.where(keys.is_valid().to_numpy(zero_copy_only=False), hashed, alone).astype(np.int32)

    # --- keys, headers, sizes ---

    def _bytes(self, column: pa.Array) -> pa.Array:
        if pa.types.is_integer(column.type):
            column = column.cast(pa.string())
        return column.cast(pa.binary())

    def _refuse(self, made: Outgoing, known: Mapping[str, TargetTopic | str], bad: dict[int, Bad]) -> None:
        """Add messages that brokers would refuse, because they are too large or lack a key, to `bad`."""
        names, keys, values = made.topics, made.keys, made.values
        missing = {name for name, topic in known.items() if isinstance(topic, str) and topic}
        compacted = {name for name, topic in known.items() if not isinstance(topic, str) and topic.compacted}
        limits = {name: topic.max_bytes for name, topic in known.items() if not isinstance(topic, str)}
        for index in range(len(values)) if missing else ():
            if names[index] in missing:
                bad.setdefault(index, Bad(index, "no-topic", str(known[names[index]])))
        for index, key in enumerate(keys) if compacted else ():
            if key is None and names[index] in compacted:
                message = f"the topic {names[index]} is compacted, but the message has no key"
                bad.setdefault(index, Bad(index, "no-key", message))
        # quick check, sufficient for nearly all batches: the sum of the longest parts is not too large
        parts: list[Sequence[bytes | str | None]] = [values, keys, made.ids or (), *made.headers.values()]
        room = _MESSAGE_HEAD_BYTES + sum(len(header) + 16 for header in (ID_HEADER, *made.headers))
        if room + sum(max(map(len, filter(None, part)), default=0) for part in parts) <= min(limits.values(), default=0):
            return
        for index, name in enumerate(names):
            size = room + sum(len(part[index] or b"") for part in parts if part)
            if index not in bad and size > limits[name]:
                message = f"the message has {size:,} bytes; the topic {name} allows {limits[name]:,}"
                bad[index] = Bad(index, "too-large", message)

    def _wrong(self, what: str, remedy: str) -> SinkError:
        return SinkError(f'sink "{self._node}": {what}', remedy=remedy, code="kafka-columns", node=self._node)


class PartitionExpression:
    """The expression in `partition:`, evaluated for rows by DuckDB. Raises SinkError if it is not an integer expression over the columns,
    EnvironmentFault if DuckDB is not installed."""

    def __init__(self, node: str, text: str, schema: Schema) -> None:
        import sqlglot

        try:
            import duckdb
        except ImportError as error:
            raise EnvironmentFault(
                f'sink "{node}": `partition:` needs the package duckdb: {error}',
                remedy="install it: pip install 'scribengin[kafka-partition]'",
                code="kafka-partition-client",
                node=node,
            ) from error

        from scribengin.core.types import arrow_schema

        self._node, self._text = node, text
        try:
            self._sql = sqlglot.transpile(text, read="spark", write="duckdb")[0]
        except sqlglot.errors.SqlglotError as error:
            raise self._wrong(str(error).splitlines()[0]) from error
        self._database = duckdb.connect(config={"threads": 1})
        try:
            found = self._run(pa.RecordBatch.from_pylist([], arrow_schema(schema)))
        except duckdb.Error as error:
            raise self._wrong(str(error).splitlines()[0]) from error
        if not pa.types.is_integer(found.type):
            raise self._wrong(f"gives {found.type}; expected an integer")

    def __call__(self, rows: pa.RecordBatch) -> list[int | None]:
        """The number for each row; None for null. Raises SinkError if it cannot be computed for one of the rows."""
        import duckdb

        try:
            numbers: list[int | None] = self._run(rows).to_pylist()
        except duckdb.Error as error:
            raise self._wrong(str(error).splitlines()[0]) from error
        return numbers

    def _run(self, rows: pa.RecordBatch) -> Any:
        relation = self._database.from_arrow(pa.Table.from_batches([rows]))
        return relation.project(f"{self._sql} AS number").to_arrow_table().column("number")

    def _wrong(self, what: str) -> SinkError:
        return SinkError(
            f'sink "{self._node}": `partition: {self._text}`: {what}',
            remedy="write an expression over the columns that gives an integer, such as: id % 4",
            code="kafka-partition",
            node=self._node,
        )


def _milliseconds(column: pa.Array) -> list[int]:
    """Times in milliseconds since 1970; 0 (the time of writing) for null."""
    micros = column.cast(pa.timestamp("us", tz=column.type.tz)).cast(pa.int64())
    return [0 if value is None else max(0, value // 1000) for value in micros.to_pylist()]
