"""What each reason of a dead letter means, and what to do: `scribengin explain REASON`, and the end of docs/problems.md."""

from __future__ import annotations

from dataclasses import dataclass

_REPAIR = "Repair it: `scribengin dead-letter edit FLOW KEY`, then `scribengin dead-letter replay FLOW KEY`"
_REPAIR_TOO = _REPAIR[0].lower() + _REPAIR[1:]
_BEHIND_JOIN = "Behind a join both need `--from-start`: the record of the source comes again, with all rows that the join makes of it"
_CHANNEL = "Do not delete anything; the tier before it still has what it wrote. Look at the machine's disks and report it."


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason. `example` is a record or a value, and what is wrong with it."""

    name: str
    title: str
    meaning: str
    remedy: str
    example: str


REASONS: tuple[Reason, ...] = (
    Reason(
        "ahead",
        "Its time is in the future",
        "The time of the row is further ahead of the clock than the watermark takes (`ahead`), so that it would make all later rows late.",
        "Correct the clock of the writer, or raise `ahead`. A replay is judged by the clock again: it passes once its time has come.",
        'ts 2036-01-01 in a record that is read in 2026 → "ts" is 2036-01-01; the watermark takes times up to …',
    ),
    Reason(
        "corrupt",
        "A part of the file is damaged",
        "A compressed file, or a block of an Avro file, cannot be read from the place in the message on. What stands before it was read.",
        "Get the file again from its writer and put it there under a new name. The bytes of the dead letter cannot be replayed.",
        "a block of an Avro file whose sync marker is wrong",
    ),
    Reason(
        "damaged",
        "A record batch of a channel is damaged",
        "Its checksum or its frame is wrong: the bytes were changed on a disk or on their way between two tiers.",
        _CHANNEL,
        "the frame at 4096 says 9 bytes",
    ),
    Reason(
        "foreign",
        "Something else writes into the channel",
        "The bytes are not a record batch of the tier that feeds this channel.",
        "Find who writes to that topic or folder, and give it another; a channel is for its two tiers alone.",
        "a message that another program sent to the channel's topic",
    ),
    Reason(
        "hole",
        "The file has NUL bytes where records should be",
        "A file that was truncated while its writer went on has them (as with `copytruncate`), or one that a crash has cut off.",
        "Nothing needs to be done if log rotation does it; else get the file again. What stands behind the hole is read.",
        "1,024 NUL bytes between two lines",
    ),
    Reason(
        "invalid-utf8",
        "The bytes are not in the encoding",
        "Bytes of the record are not valid in the encoding of the source, which is UTF-8 unless `encoding` names another.",
        f"Set `encoding` of the source if all files are so (`scribengin infer` finds it); else correct the writer. {_REPAIR}.",
        "M\\xfcnchen (windows-1252) → byte 1 of the line is not UTF-8",
    ),
    Reason(
        "invalid-value",
        "The text is not a valid value of the type",
        "The field is a string as expected, but not of the form of its type: a day that does not exist, or a number with other characters.",
        f"Read the field as STRING and convert it in a step, or correct the writer. {_REPAIR}.",
        '{"ts": "2026-02-30T00:00:00Z"} for a TIMESTAMP',
    ),
    Reason(
        "late",
        "It came behind the watermark",
        "A row of a step that keeps state is older than the newest row minus the delay of the watermark, so that its window is closed; or "
        "it came for a folder of a sink that is closed.",
        "Raise the delay of `watermark` if such rows are common; `late: drop` counts them only. A replay is late again unless its time is "
        f"repaired (`scribengin dead-letter edit FLOW KEY`). {_BEHIND_JOIN}.",
        '"ts" is 2026-01-01T08:00:00Z, and the watermark of the query has passed it: 2026-01-01T09:50:00Z',
    ),
    Reason(
        "malformed",
        "The record cannot be read in its format",
        "It is not one record of the format at all: JSON that ends too early, CSV with an open quote, Avro of another schema.",
        f"If all records are so, `format` or an option of it is wrong: `scribengin infer` shows what fits. Else {_REPAIR_TOO}.",
        '{"id": 1 → not a JSON object: truncated JSON',
    ),
    Reason(
        "missing",
        "A NOT NULL field has no value",
        "The field is absent or null, and its column is NOT NULL.",
        f"Take NOT NULL out of the schema if the field may be absent, and replay. Else {_REPAIR_TOO}.",
        '{"amount": 2.5} for `id BIGINT NOT NULL`',
    ),
    Reason(
        "naive-datetime",
        "A Python step returned a time without a zone",
        "A TIMESTAMP is an instant. A `datetime` without `tzinfo` does not say which.",
        "Return `value.replace(tzinfo=datetime.timezone.utc)` if it is UTC, and replay.",
        "datetime(2026, 1, 1, 12, 0)",
    ),
    Reason(
        "no-key",
        "A compacted topic needs a key",
        "Kafka takes no message without a key for a topic with `cleanup.policy: compact`.",
        "Set `key` of the sink to a column that is never null, and replay.",
        "key: user, and user is null",
    ),
    Reason(
        "no-part",
        "The row belongs to no index of a time",
        "The sink has an index for each period, and the time of the row is null or out of range.",
        f"Fill the time in a step before the sink, and replay; or {_REPAIR_TOO}.",
        "ts null where the sink makes an index a day",
    ),
    Reason(
        "no-partition",
        "The topic has no such partition",
        "The expression `partition` of the sink gave null or a number that the topic does not have.",
        "Correct the expression, or add partitions to the topic, and replay.",
        "`partition` gives 12; the topic has 6, from 0",
    ),
    Reason(
        "no-topic",
        "There is no such topic",
        "The topic is made of columns of the row; one of them is null, or the topic does not exist and the sink does not create it.",
        "Create the topic, or give the column a value in a step, and replay.",
        'the topic is "sales-{country}", and "country" is null',
    ),
    Reason(
        "not-authentic",
        "A record batch was not encrypted with the key that it names",
        "It was changed after it was written, or encrypted with another key.",
        f"Look who can write to the channel, and whether all tiers have the same keys. {_CHANNEL}",
        "a channel whose key was replaced on one host only",
    ),
    Reason(
        "null-key",
        "A key column is null",
        "The sink finds its row by the column, so that a row without it has no place.",
        "Filter such rows before the sink, or fill the column in a step, and replay.",
        "id null for a sink with `key: [id]`",
    ),
    Reason(
        "null-time",
        "The time of the row is null",
        "The step groups or joins by time, and the column of its watermark is null.",
        f"Fill the time in a step before it, or filter such rows; or {_REPAIR_TOO}. {_BEHIND_JOIN}.",
        '{"id": 1, "ts": null} for a window over `ts`',
    ),
    Reason(
        "out-of-range",
        "The value does not fit into the type",
        "It is of the right kind, but too large, too small or too fine for the type of its column.",
        "Give the column a wider type (BIGINT, DECIMAL), or `time: truncate` for times finer than microseconds, and replay.",
        "3000000000 for an INT",
    ),
    Reason(
        "pack-version",
        "The record batch is of a newer release",
        "The tier that feeds the channel runs a release whose record batches this one cannot read.",
        "Update this tier to the same release, and replay.",
        "one host was updated, another was not",
    ),
    Reason(
        "ragged",
        "The line of CSV has too many or too few cells",
        "It has another number of cells than the header, or the schema.",
        f"If a delimiter stands in values, set `quote`; `extra_cells: drop` leaves surplus cells out. Else {_REPAIR_TOO}.",
        "1,Munich,DE,x under the header id,city,country",
    ),
    Reason(
        "raised",
        "A Python function raised an exception",
        "The message has the exception, and `scribengin dead-letter show` the line of your code.",
        "Correct the function, or the record, and replay: it enters at that step again.",
        "KeyError: 'country' at steps.py:12",
    ),
    Reason(
        "refused",
        "The place does not take the row",
        "The database, index or server behind the sink has refused this row for itself, in the words of the message.",
        "Correct what it complains of: a constraint, a mapping, a partition; and replay.",
        'violates check constraint "positive"',
    ),
    Reason(
        "replay-refused",
        "The step where it was to enter is gone",
        "The flow was changed between `dead-letter replay` and the run that replayed it.",
        "Replay it with --from-start: `scribengin dead-letter replay FLOW KEY --from-start`.",
        'it was to enter the flow at "checked", which is no such step any more',
    ),
    Reason(
        "require",
        "A requirement does not hold",
        "The expression that `require` of the step or source names is false or null for the row.",
        "Correct the record or the requirement, and replay.",
        'require: {positive: amount > 0}, and amount is -1 → "positive" does not hold',
    ),
    Reason(
        "sql-error",
        "An expression fails for the row",
        "A cast, a division or a function of SQL raises an error for this record.",
        f"Use `try_cast`, `try_divide` or a filter before it, and replay; or {_REPAIR_TOO}.",
        "cast(x AS INT) where x is 'n/a' → [CAST_INVALID_INPUT]",
    ),
    Reason(
        "surplus-key",
        "A Python step returned a key that is not in its schema",
        "The row that it returned has more keys than the `schema` of the step.",
        "Add the column to the schema, or leave the key out, and replay.",
        'key "tax": is not in the schema (id, amount)',
    ),
    Reason(
        "time-limit",
        "A Python function took too long",
        "It took longer than `time_limit` for the record, or hung.",
        "Raise `time_limit`, or look what the function waits for, and replay.",
        "time_limit: 5s, and a request without a timeout",
    ),
    Reason(
        "too-large",
        "The row is larger than the place takes",
        "The message, key, name of a folder or document is larger than the limit in the message.",
        "Shorten it in a step before the sink, or raise the limit of the server (`max.message.bytes` of a topic), and replay.",
        "the message has 1,200,000 bytes; the topic takes 1,048,588",
    ),
    Reason(
        "too-long",
        "The record is longer than `max_record`",
        "It was not read completely: the dead letter has its first 64 KiB. A missing line end or an open quote makes a file one record.",
        "Raise `max_record` of the source if records are so long, or correct the file; give the whole record with "
        "`scribengin dead-letter edit FLOW KEY --with FILE`.",
        "a line of 20 MiB where `max_record` is 16 MiB",
    ),
    Reason(
        "truncated",
        "The data end too early",
        "A compressed file, an Avro file or a message is cut off. What stands before the end was read.",
        "Get the file again from its writer and put it there under a new name; write files under a hidden name and rename them when whole.",
        "a .gz that was copied while it was written",
    ),
    Reason(
        "type",
        "The column cannot hold the value",
        "The type of the column in the table, or in the record batch, is narrower than the value of the row.",
        "Change the column of the table, or cast in a step before the sink, and replay.",
        'field "amount" is 1e300, which DECIMAL(10, 2) cannot hold',
    ),
    Reason(
        "unknown-schema",
        "The schema registry does not know the schema",
        "The message names an id for which the registry has no schema.",
        "Set `registry` of the source to the registry of the writer, or register the schema there, and replay.",
        "Avro's wire format with id 4711",
    ),
    Reason(
        "url-value",
        "The row makes no valid address",
        "A column in `url` of the sink is null, empty, or makes an address that is not valid.",
        "Fill the column in a step before the sink, and replay.",
        "url: https://example.org/{user}, and user is null",
    ),
    Reason(
        "wrong-format",
        "The file is of another format",
        "Its first bytes are those of another format or compression than the source names.",
        "Correct `format`, `compression` or `path` of the source; nothing of the file was read.",
        "a Parquet file for `format: json`",
    ),
    Reason(
        "wrong-type",
        "The value is of another kind than the column",
        "A string where a number should be, an object where a list should be.",
        f"Give the column the type that the data have, and replay. Else {_REPAIR_TOO}.",
        '{"amount": "2.5"} for `amount DOUBLE` → field "amount": found a string',
    ),
)


def reason_of(name: str) -> Reason | None:
    """The reason of that name; None if there is none."""
    return next((reason for reason in REASONS if reason.name == name), None)
