"""The parts of docs/flow-file.md that are not generated from declarations. Tests run its code blocks."""

from __future__ import annotations

HEAD = """\
# The flow file

A flow file defines where records come from, how they are processed and where they go. `scribengin validate FILE` reports
all mistakes in it at once; [problems.md](problems.md) explains each. This page is generated from the declarations that
the parser uses.

```yaml
version: 1
name: tweets
about: "Popular #PresidentialDebate tweets, kept and counted."
defaults: {delivery: exactly_once, on_error: dead_letter, trigger: 1s}

sources:
  tweets:
    type: files
    path: data
    format: json
    schema: id BIGINT, user STRING, text STRING, followers BIGINT, retweets BIGINT, ts TIMESTAMP
    watermark: ts 10m

steps:
  known:   {from: tweets, filter: followers > 5000, require: {dated: ts IS NOT NULL}}
  hot:     {from: known, filter: retweets > 500}
  tagged:  {from: hot, python: "steps:has_tag"}
  by_hour: {from: tagged, sql: "SELECT window(ts, '1 hour').start AS hour, count(*) AS n FROM tagged GROUP BY window(ts, '1 hour')"}

sinks:
  kept:   {from: tagged, type: files, path: out/kept, format: parquet}
  counts: {from: by_hour, type: files, path: out/counts, format: json}
```

## The text

- It is YAML 1.2: `yes`, `no`, `on` and `off` are texts, `0o7` is a number, `12:30` is not. A key that is duplicated
  is an error.
- ` #` begins a comment. After a value without quotes it raises a warning, because it is usually an unquoted
  `#hashtag`.
- Inside `{ }` a comma ends a value, and `{`, `}`, `[`, `]` belong to YAML: quote SQL that contains them, and values with
  `${…}`.
- Unknown keys are errors. Keys that begin with `x-` may have any value, at every level.
- Ids of sources, steps and sinks must be unique: a lower-case letter, then lower-case letters, digits and `_`; at most
  63 characters.
- A duration is a number and `ms`, `s`, `m` (or `min`), `h` or `d`; a size a number and `B`, `kB`, `MB`, `GB`, `TB`,
  `KiB`, `MiB`, `GiB` or `TiB`. The unit is mandatory.
- Paths are relative to the flow file's folder. Modules are searched there and then on the Python path; never in the working
  directory.

### Values from outside

| written | value |
|---|---|
| `${env:NAME}` | the environment variable; an error if it is not set |
| `${env:NAME:-default}` | the environment variable, or the default |
| `${secret:env/NAME}`, `${secret:file/PATH}` | a secret: only in options that are declared as one; never printed or stored |
| `$${` | a plain `${` |

They are replaced after the YAML is parsed, only inside values. The option determines the type of the result.
"""

SQL = """\
## Names and SQL

A column may have any name. Upper and lower case differ, also in SQL. In SQL, write a name in backticks unless it has only the letters
A to Z, digits and `_`; double a backtick in it. Everywhere else (`key`, `by`, `time`, `partition_by`, `{…}` of templates) write it as
it is; in a watermark, use backticks if the name has blanks:

```yaml
sources:
  logs:
    type: files
    path: logs
    format: json
    schema: "`@timestamp` TIMESTAMP, `log.level` STRING, `user id` INT"
    watermark: "`@timestamp` 10m"
steps:
  bad: {from: logs, filter: "`log.level` = 'error'"}
  per: {from: bad, aggregate: {by: [user id], window: {time: "@timestamp", size: 1h}, columns: {n: count(*)}}}
```

SQL is Spark SQL in ANSI mode: a cast that fails makes its record a dead letter. If a text meets a number (`amount > 5`, keys of a join,
`coalesce(amount, 0)`), Spark casts the text implicitly, to BIGINT if the number is a whole number: `validate` warns, and
`try_cast(amount AS DOUBLE) > 5` is null instead. The meaning of a backslash:

| where | `'\\d'` | `'\\\\d'` | `r'\\d'` |
|---|---|---|---|
| a regular expression (`RLIKE`, `regexp_…`, `split`, `str_to_map`) | `\\d` | `\\d` | `\\d` |
| any other text | `d`; `validate` warns | `\\d` | `\\d` |

A regular expression is a literal in the arguments of these functions or after `RLIKE`. In it, `\\b` and `\\Z` are the edge of a word and
the end of the text; `\\n`, `\\r`, `\\t`, `\\\\`, `\\'`, `\\"` and `\\uXXXX` have the same meaning as in every text. In the replacement of
`regexp_replace`, groups are `$1`. `LIKE` allows a backslash only before `%`, `_` and a second one: one backslash of the data is
`'\\\\\\\\'`. In a double-quoted YAML text each backslash is written twice for YAML.
[Why](decisions/0060-a-single-backslash-in-a-pattern-stays.md).
"""

SCHEMAS = """\
## Schemas

`schema: TEXT` is short for `schema: {fields: TEXT}`. The text is `NAME TYPE [NOT NULL], …`; write a name with other
characters than letters, digits and `_` in backticks. Upper and lower case of names differ. `evolve` beside `fields`
sets what happens to columns that are not declared: [schemas](schemas.md).

| type | a Python function gets |
|---|---|
| `BOOLEAN` | `bool` |
| `TINYINT`, `SMALLINT`, `INT`, `BIGINT` | `int` |
| `FLOAT`, `DOUBLE` | `float` |
| `DECIMAL(precision, scale)` | `decimal.Decimal` |
| `STRING` | `str` |
| `BINARY` | `bytes` |
| `DATE` | `datetime.date` |
| `TIMESTAMP` | an aware `datetime.datetime` in UTC |
| `ARRAY<type>` | `list` |
| `MAP<type, type>` | `dict` |
| `STRUCT<name: type, …>` | `dict` |

### What a record must be

A record is read by the rules of this table, or it becomes a dead letter that names the field. A source whose first file
has none of the columns, or for CSV less than half of them, or one whose name differs only in blanks or case, stops before it reads
anything (`source-columns`). So does a source without a column that steps or sinks use as a key, a time or a partition. The message names
the option that reads it, and `--accept columns` continues. A lookup table (`static: true`) is checked at each start, in all of its files.

| found | result |
|---|---|
| a field with another name, or with other upper and lower case | it counts as another field; the declared one is missing |
| a missing field, or null | null; for `NOT NULL` a dead letter |
| a field that is not declared | dropped |
| a number, a boolean, an object or a list for `STRING` | dead letter |
| a text for a number or a boolean | dead letter; but `"NaN"`, `"Infinity"`, `"-Infinity"` are values of `FLOAT` and `DOUBLE` |
| `1.0` for `BIGINT` and the other whole-number types | dead letter |
| a number for `TIMESTAMP` or `DATE` | dead letter |
| a number out of its type's range | dead letter |
| a whole number that `FLOAT` or `DOUBLE` would round: `9007199254740993` | dead letter |
| a number with decimals or an exponent for `FLOAT` or `DOUBLE` | the nearest value |
| more decimals than `DECIMAL` has, unless they are zeros | dead letter |
| a time with more than six decimals of a second, unless zeros | dead letter; with `time: truncate` the rest is cut off, never rounded |
| a time with its offset as `+0100` or `+01`, or a comma before its decimals | that time |
| text after the record, a second object in its line | dead letter |
| single quotes instead of double ones | dead letter |
| the same key twice in an object | the last one counts |
| an empty line; in CSV and text also a line that begins with `comment` | skipped, counted as filtered |
| CSV: an empty cell without quotes, or one of `null` | null; in quotes it is a text, unless `quoted_null` is set otherwise |
| CSV: more or fewer cells than columns | dead letter; for more cells see `extra_cells` |
| bytes that are not valid in the source's `encoding` | dead letter |

[How to read the files that you have](formats.md) lists the options of CSV and text by kinds of files.

These rules apply to every format: JSON and CSV (from files, messages and `parse` steps), Avro and Parquet.

`parse: spark` uses Spark's own readers instead, which are less strict: of two objects in a line, the second is
lost; text after the record, single quotes, and numbers for `STRING` are accepted; and the message for an unreadable record
does not name a field.

### Avro

A record in Avro is decoded with the schema of its writer, and then converted to the declared columns by the same rules:
names must match exactly, other fields are dropped, missing ones are null or make a dead letter, and a value that does not fit its column
makes a dead letter that names the field. For a union with null the other type counts, for a larger union the type of the value.

| Avro | column types |
|---|---|
| `boolean` | `BOOLEAN` |
| `int`, `long` | `TINYINT` to `BIGINT` if in range; `FLOAT`, `DOUBLE`, `DECIMAL` if no digit is lost |
| `float`, `double` | `FLOAT`, `DOUBLE` |
| `string`, `enum`, `uuid` | `STRING` |
| `bytes`, `fixed` | `BINARY` |
| `decimal` | `DECIMAL`, if no digit is lost |
| `date` | `DATE` |
| `timestamp-…`, `local-timestamp-…` in millis, micros, nanos | `TIMESTAMP`, if no digit is lost; a local one counts as UTC |
| `array`, `map`, `record` | `ARRAY`, `MAP` with keys of `STRING`, `STRUCT` |

There are no other conversions: a text never becomes a time, nor a number a text. Recursive types are rejected. Files are object
container files, which contain the schema (codecs null, deflate, bzip2, xz, zstandard, snappy). For Kafka messages, a
flow sets the writer's schema in one of three ways: `registry: URL` (values in the wire format of schema registries,
schemas are fetched by their ids), `avro_schemas: {"7": FILE}` (the same format, schemas from files), or
`avro_schema: FILE` (plain Avro, one schema for all values).
"""

TIERS = """\
## Tiers, edges and groups

`tiers` split a flow into parts that run separately; they do not change what the flow does. Without `tiers` the flow runs as one part;
with them each tier runs by itself, and rows go from one tier to another through a *channel*: a Kafka topic or a folder. The result is the
same.

```yaml
tiers:
  near: {steps: [known, hot], group: hosts_a, resources: {cores: 2, memory: 2GiB}, trigger: 1s}
  core: {steps: [tagged, by_hour], acknowledge: state}

edges:
  "hot -> tagged":
    channel: {type: kafka, bootstrap: "broker1:9092"}
    compression: zstd
    encryption: {keyring: secrets/channel.keys}
    pack: {rows: 1000, bytes: 256KiB, linger: 50ms}
    ordering: key
    key: [user]
    high_water: {rows: 100000, bytes: 1GiB, age: 5m}
    low_water: {rows: 50000}
    capacity: {rows: 1000000}

groups:
  hosts_a: {members: [{at: host1, cost: 1}, {at: host2, name: second, cost: 2}]}
```

Split a flow where one part must not wait for another: between a cheap step beside the source and an expensive one elsewhere, before a
sink that is often unavailable, or where rows of several flows are combined. A channel costs a write and a read of every row that
crosses it, so put filters before it.

- An edge is the connection from a node, or from `route.branch`, to a node that reads it; blanks around `->` are optional. Edges
  may stay in the file when `tiers` are removed: the flow then runs as one part, and they have no effect.
- A source is read by each tier that needs it; it has a channel only if `steps` puts it in another tier than its
  reader.
- `defaults: {edge: …}` sets properties for all edges that do not set them, except `to` and the channel's `topic` and `path`.
- Several edges from one node into one tier share one channel, and must have the same properties.
- `autoscale` of a tier has an effect only on a control plane, and only where a tier can have executors: on a Spark cluster or in YARN. A
  `run` ignores it. It [advises, or acts](changing.md#scale-a-tier-automatically).
- A topic or folder of an edge must not be used for anything else. It may be shared by the edges of one node into several tiers
  (a fork), and by the edges into one union (a fan-in), whose writers must then pack, encrypt and order in the same way. To know the input
  of a row of a union, use `merge: {how: union, origin: COLUMN}`.
- `group` of a tier names a group of hosts: `at` of a member is then the `--name` of a `scribengin server node`, or the name of its
  machine. On a control plane the tier runs only there, on the available host with the lowest cost and free resources; if
  there is none, it waits, and `status` reports it ([control](cluster.md#masters-and-nodes)). A `run` runs all tiers on its own machine.
- `to` of an edge or a sink names a group, or one of its members: `wan`, `wan.second`. `at` of a member sets, for a sink
  or a channel in Kafka, its `bootstrap`; for a database or a store its `server` or `url`. For files, Delta tables and a
  channel in a folder it is a folder, and the node's own `path` is relative to it: `at: /mnt/a` and `path: out/kept` give
  `/mnt/a/out/kept`. All other options are the same for all members, including logins. Some types, and sinks that write by key, cannot go
  to a group (`group-sink`): [which can](groups.md#which-sinks-can-go-to-a-group).
- The available member with the lowest cost is used; members of equal cost take turns. A member that does not answer is skipped for
  one second, twice as long after each further failure, at most one minute; then one Batch tries it. A Batch stays with the
  member for which it is decided; see [guarantees](kafka-commits.md#groups). An edge to a group needs `durability: end_to_end`.
  On a control plane, a member can be disabled, and its cost changed, while flows run: [groups](groups.md).
"""

TIME = """\
## Time

- The time zone is UTC on every machine. A `TIMESTAMP` is an instant, read as ISO 8601; without an offset it is UTC.
  Numbers are not timestamps: use `timestamp_millis(x)` in SQL. Output is ISO 8601 with `Z` and six decimals.
- A watermark `COLUMN DURATION` is set on a source or on a step whose output has the column, and is inherited by the nodes that
  read it; of several inputs the slowest applies. Rows that are older than the newest row by more than the duration are late:
  a step that keeps state does not process them. Depending on its `late`, they become dead letters with their bytes, both times and the
  reason `late` (the default), are dropped and counted, or stop the query (`error`), independent of its `on_error`.
- A row without a time becomes a dead letter (`null-time`) at a window, or at a join with a time limit.
- `plan` has a hint for each step in which Spark drops rows without a predicate: `explode` of null or of an empty
  array, a null in the key of a join, in the condition of a `JOIN` or in the key of `dedupe`, equal rows of `INTERSECT`.
- Windows follow UTC, unless `aggregate: {window: {time: ts, size: 1d, time_zone: Europe/Berlin}}` names another zone:
  a day is then from midnight to midnight there, 23 or 25 hours long when the clocks change. Windows of whole hours
  support that if they do not slide; both halves of the hour that occurs twice are in the same window. Without
  it, and in SQL's `window(…)`, a window begins at a multiple of its size since the beginning of 1970 in UTC.
- With `--once` a window that the watermark has not passed stays open; the summary lists these windows, their ends, and the record that
  would close them: [When an input is finished](late-rows.md#when-an-input-is-finished).
- A join of two streams needs `time` and `within`. `dedupe` and `merge: {how: intersect}` also need them, unless they are to
  keep every key for ever.
"""

PYTHON = """\
## Python functions

```python
from scribengin import batch, frame, record, to


@record  # the default: a dict in
def has_tag(row):
    return "#" in row["text"]  # True keeps the row, False or None drops it; or a dict, or a list or generator of dicts


def sort_out(row):
    return to("late", row) if row["ts"] is None else row  # for python: {function: …, branches: [late]}; read as step.late


@batch  # a pyarrow.RecordBatch in, one or several out
def first_ten(rows):
    return rows.slice(0, 10)


@frame  # a Spark DataFrame in, one out; counted at its ends, needs on_error: fail
def distinct(rows):
    return rows.distinct()


class Enrich:  # an instance for each task; never shared between threads
    def open(self):
        self.seen = 0

    def __call__(self, row):
        self.seen += 1
        return row | {"seen": self.seen}
```

`schema:` of the step declares its output columns; by default they are those of its input. An unknown key, a wrong
type or an exception makes a dead letter that names the key or the line. The `.py` files in the flow's folder
are sent to the executors.

## A flow in Python

A flow can also be written in Python. It is the same flow, and `scribengin config resolved FLOW` prints it as YAML. A flow file in
Python has the suffix `.py` and sets the variable `flow`:

```python
from scribengin import Flow, source


def has_tag(row):
    return "#" in row["text"]


tweets = source(
    "files", id="tweets", path="data", format="json", schema="user STRING, text STRING, followers BIGINT, ts TIMESTAMP", watermark="ts 10m"
)
tagged = tweets.filter("followers > 5000", require={"dated": "ts IS NOT NULL"}).map(has_tag, id="tagged")
by_hour = tagged.group_by("user").window("ts", size="1h").agg(n="count(*)", id="by_hour")

flow = Flow(
    "tweets",
    tagged.to("files", id="kept", path="out/kept", format="parquet"),
    by_hour.to("files", id="counts", path="out/counts", format="json"),
)
```

| operation | in Python |
|---|---|
| `filter` | `.filter("followers > 5000")` |
| `select` | `.select("id", "upper(user) AS who")` |
| `sql` | `.sql("SELECT … FROM a JOIN b …", b)` |
| `aggregate` | `.group_by("user").window("ts", size="1h", slide="10m").agg(n="count(*)")` |
| `join` | `.join(b, key="id", how="left", time=("ts", "at"), within="10m")` |
| `parse` | `.parse("value", format="json", schema="id BIGINT")` |
| `route` | `r = a.route({"big": "amount > 100"}, otherwise="small")`, then `r["big"]` |
| `python` | `.map(f)`, `.python(f, branches=["late"], time_limit="5s")`; `f` is a function, a class, or `"module:name"` |
| `utilities` | `.utilities(f, g, order="free")` |
| `dedupe` | `.dedupe("id", time="ts", within="10m")` |
| `merge` | `.merge(b, c)`, `.merge(b, how="intersect", key="id")`, `.merge(b, origin="came_by")` |
| a sink | `.to("files", path=…, format=…)`; pass every sink to `Flow(…)` |
| `tiers`, `edges`, `groups` | `Flow(…, tiers={"near": {"steps": ["known"]}}, edges={"known -> hot": {"compression": "zstd"}})` |
| `max_dead` | `Flow(…, max_dead="1%")`, `Flow(…, max_dead={"run": "1%", "then": "degrade"})` |
| `max_delay`, `alerts` | `Flow(…, max_delay="5m", alerts={"stuck": {"when": "no progress for 5m"}})` |

A source, a list of Python steps and a sink are shorter as an `App`: [utilities](utilities.md#app).

Every step accepts `id`, `require`, `on_error` and `watermark`; a step that keeps state also `late`. The default `id` consists of its source
and operation. Texts have the same meaning as in YAML. A mistake is reported at the line of its call. `validate` never executes your
code: it checks only the syntax of a `.py` file; `plan` executes the file and checks the rest.
"""

MAX_DEAD = """\
### Too many dead letters

Without `max_dead` any number of records may become dead letters. If they are more than half of the records that a query has read in a
run, `run` ends with exit status 1 and reports it first, and `status` of a running flow reports it too. `max_dead: 100%` accepts that.

```yaml
max_dead: 1%
```

A query stops with the error `max-dead` before it commits a Batch in which more than 1 % of the records are dead letters, or with which
more than 1 % of all records of the run would be. That Batch is then not visible, and its dead letters are not kept: the error
names the step, the reason and the first record. Fix the step or the data and start again: the Batch runs again, with all of its records.
A sink that commits each task output on its own (`visible: unit`), or that Spark writes, has written the Batch before it is counted: it is
committed with its dead letters, and the query stops after it. The same is true for a Batch if a store rejects some of its records after
the commit.

With `then: degrade` the query continues. The flow is `degraded` until it is resumed or restarted, and `run` ends with exit status 1.

A small Batch reaches a percentage quickly: one bad record of ten is 10 %. `max_dead: {run: 100}` limits the number instead. Dead
letters that are replayed are not counted, neither as records nor, if they fail again, as dead letters. Records that `on_error: drop` or
`late: drop` drops are not dead letters. `scribengin test` ignores `max_dead`.
"""

ALERTS = """\
## Delay and alerts

They apply to flows on a control plane; `run` ignores them. [Monitor flows](monitor.md#alerts) describes how they are evaluated and sent.

```yaml
max_delay: 5m

alerts:
  stuck:   {when: no progress for 5m}
  behind:  {when: lag over 100000 rows for 2m, webhook: "https://hooks.example.org/flows"}
  late:    {when: lag over 60s for 2m, command: [notify, ops]}
  letters: {when: dead letters over 100 in 10m}
  loop:    {when: restarts over 3 in 10m}
  edge:    {when: agent away for 5m}
```

| `when` | fires if |
|---|---|
| `no progress for TIME` | there is unread input, or a Batch is running, and no Batch was committed for that time |
| `lag over N rows for TIME` | more than N rows were unread, at sources and in channels, during all of that time |
| `lag over TIME for TIME` | the oldest unread input was older than the first time, during all of the second |
| `dead letters over N in TIME` | more than N records became dead letters within that time |
| `restarts over N in TIME` | workers, or queries in them, restarted more than N times within that time |
| `agent away for TIME` | an agent that collects for the flow has missed three reports, and does not report for that time after them |
"""

TESTS = """\
## Tests

`scribengin test FLOW` runs them; `run` ignores them. [Testing flows](testing.md) describes how.

```yaml
tests:
  - name: exactly five hundred is not enough
    given: {tweets: [{id: 1, user: a, text: "#PresidentialDebate", followers: 5001, retweets: 500, ts: "2026-01-01T00:00:00Z"}]}
    expect: {kept: []}
```
"""

EDITORS = """\
## Editors

`scribengin config schema > flow.schema.json` writes a JSON Schema with all keys and options. Editors with a YAML language
server use it if the file begins with `# yaml-language-server: $schema=flow.schema.json`.
"""
