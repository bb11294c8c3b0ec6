"""The parts of docs/flow-file.md that no declaration holds. The tests run what stands in its code blocks."""

from __future__ import annotations

HEAD = """\
# The flow file

A flow file says where records come from, what happens to them and where they go. `scribengin validate FILE` tells
every mistake in it at once; [problems.md](problems.md) explains each. This page is made from the declarations that
the parser itself reads.

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
- ` #` begins a comment. After a text without quotes that is told with a warning, because with `#hashtag` it is seldom
  meant.
- Inside `{ }` a comma ends a value, and `{`, `}`, `[`, `]` belong to YAML: quote SQL that holds them, and values with
  `${…}`.
- Unknown keys are errors. Under keys that begin with `x-` anything goes, at every level.
- Sources, steps and sinks share one set of ids: a lower-case letter, then lower-case letters, digits and `_`; at most
  63.
- A duration is a number and `ms`, `s`, `m` (or `min`), `h` or `d`; a size a number and `B`, `kB`, `MB`, `GB`, `TB`,
  `KiB`, `MiB`, `GiB` or `TiB`. The unit is mandatory.
- Paths and modules start at the flow file's folder, modules then go on along the Python path; never at the working
  directory.

### Values from outside

| written | becomes |
|---|---|
| `${env:NAME}` | the environment variable; a problem where it is not set |
| `${env:NAME:-default}` | the environment variable, or the default |
| `${secret:env/NAME}`, `${secret:file/PATH}` | a secret: only in options that are declared as one; never printed or stored |
| `$${` | a plain `${` |

They are filled in after the YAML was read, inside values only, and typed by the option in which they stand.
"""

SQL = """\
## Names and SQL

A column may have any name. Upper and lower case differ, in SQL too. In SQL a name stands in backticks unless it is made of the letters
A to Z, digits and `_`; a backtick in it is doubled. Everywhere else (`key`, `by`, `time`, `partition_by`, `{…}` of templates) it stands as
it is; a watermark takes backticks where a name has blanks:

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

SQL is Spark's, in ANSI mode: a cast that fails makes its record a dead letter. Where a text meets a number (`amount > 5`, keys of a join,
`coalesce(amount, 0)`) Spark casts the text by itself, to BIGINT beside a whole number: `validate` warns, and
`try_cast(amount AS DOUBLE) > 5` is null instead. What a backslash means:

| where | `'\\d'` | `'\\\\d'` | `r'\\d'` |
|---|---|---|---|
| a regular expression (`RLIKE`, `regexp_…`, `split`, `str_to_map`) | `\\d` | `\\d` | `\\d` |
| any other text | `d`; `validate` warns | `\\d` | `\\d` |

A regular expression is a literal in the arguments of these functions or behind `RLIKE`. In it `\\b` and `\\Z` are the edge of a word and
the end of the text; `\\n`, `\\r`, `\\t`, `\\\\`, `\\'`, `\\"` and `\\uXXXX` are what they are in every text. In what `regexp_replace` puts
in, groups are `$1`. `LIKE` takes a backslash before `%`, `_` and a second one alone: one backslash of the data is `'\\\\\\\\'`. In a
double-quoted YAML text each backslash is written twice for YAML. [Why](decisions/0060-a-single-backslash-in-a-pattern-stays.md).
"""

SCHEMAS = """\
## Schemas

`schema: TEXT` is short for `schema: {fields: TEXT}`. The text is `NAME TYPE [NOT NULL], …`; a name with other
characters than letters, digits and `_` stands in backticks. Upper and lower case of names differ. `evolve` beside `fields`
says what becomes of data with other columns: [schemas](schemas.md).

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

Nothing becomes null silently: a record is read by this table, or it is a dead letter that names the field. A source whose first file
has none of the columns, or of CSV less than half of them, or one under a name that differs only in blanks or case, stops before it reads
anything (`source-columns`); so does one that lacks a column which steps or sinks read as a key, a time or a partition. The message names
the option that reads it, and `--accept columns` goes on. A lookup table (`static: true`) is looked at so at each start, all files of it.

| found | becomes |
|---|---|
| a field with another name, or with other upper and lower case | that field is another one: the wanted one is missing |
| a missing field, or null | null; for `NOT NULL` the record is dead |
| a surplus field | dropped |
| a number, a boolean, an object or a list where `STRING` is asked | dead |
| a text where a number or a boolean is asked | dead; but `"NaN"`, `"Infinity"`, `"-Infinity"` are values of `FLOAT` and `DOUBLE` |
| `1.0` for `BIGINT` and the other whole numbers | dead |
| a number for `TIMESTAMP` or `DATE` | dead |
| a number out of its type's range | dead |
| a whole number that `FLOAT` or `DOUBLE` would round: `9007199254740993` | dead |
| a number with decimals or an exponent for `FLOAT` or `DOUBLE` | the nearest one |
| more decimals than `DECIMAL` has, unless they are zeros | dead |
| a time that is finer than microseconds, unless by zeros | dead; with `time: truncate` what is finer is cut off, never rounded |
| a time with its offset as `+0100` or `+01`, or a comma before its decimals | that time |
| text after the record, a second object in its line | dead |
| single quotes instead of double ones | dead |
| the same key twice in an object | the last one wins |
| an empty line, and of CSV and text one that begins with `comment` | skipped, counted as filtered |
| CSV: an empty cell without quotes, or one of `null` | null; one in quotes is a text, unless `quoted_null` says otherwise |
| CSV: more or fewer cells than columns | dead; of more, `extra_cells` |
| bytes that the source's `encoding` does not have | dead |

[How to read the files that you have](formats.md) has the options of CSV and text by kinds of files.

These rules hold for every format: JSON and CSV, from files, messages and `parse` steps, Avro and Parquet.

`parse: spark` reads with Spark's own readers instead, which keep less of it: of two objects in a line the second is
lost; text after the record, single quotes, and numbers for `STRING` are accepted; and a record that cannot be read
names no field.

### Avro

A record in Avro is decoded by the schema of its writer, and then taken into the declared columns by the same rules:
names are exact, surplus fields are dropped, missing ones are null or dead, and a value that its column cannot hold makes
a dead letter that names the field. Of a union with null the other type counts, of a larger one the type of the value.

| Avro | columns that take it |
|---|---|
| `boolean` | `BOOLEAN` |
| `int`, `long` | `TINYINT` to `BIGINT` where they are in range; `FLOAT`, `DOUBLE`, `DECIMAL` where no digit is lost |
| `float`, `double` | `FLOAT`, `DOUBLE` |
| `string`, `enum`, `uuid` | `STRING` |
| `bytes`, `fixed` | `BINARY` |
| `decimal` | `DECIMAL`, where no digit is lost |
| `date` | `DATE` |
| `timestamp-…`, `local-timestamp-…` in millis, micros, nanos | `TIMESTAMP`, where no digit is lost; a local one is taken as UTC |
| `array`, `map`, `record` | `ARRAY`, `MAP` with keys of `STRING`, `STRUCT` |

Nothing else: no text becomes a time, no number a text. Types that hold themselves are refused. Files are object
container files, which bring the schema along (codecs null, deflate, bzip2, xz, zstandard, snappy). For messages of Kafka a
flow says one of three things of the writer's schema: `registry: URL` (values in the wire format of schema registries,
schemas by their ids from there), `avro_schemas: {"7": FILE}` (the same format, schemas from files), or
`avro_schema: FILE` (plain Avro, all values by one schema).
"""

TIERS = """\
## Tiers, edges and groups

What a flow does and where it is cut are two things. Without `tiers` all of it runs as one; with them each tier runs by
itself, and what one hands to another goes through a *channel*: a topic of Kafka or a folder. The result is the same.

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

Cut where one part shall not wait for another: between a cheap step beside the source and a dear one elsewhere, before a
sink that is often away, or where several flows' rows come together. A cut costs a write and a read of every row that
crosses it, so filters belong before it.

- An edge is the arrow from a node, or from `route.branch`, to a node that reads it; blanks around `->` are free. Edges
  may stay in the file when `tiers` are taken out: the same flow then runs as one, and they say nothing.
- A source is read by each tier that needs it; it has a channel only where `steps` puts it into another tier than its
  reader.
- What an edge does not say, `defaults: {edge: …}` says for all, but for `to` and the channel's `topic` and `path`.
- Several edges from one node into one tier are one channel, and must say the same.
- A topic or folder that edges name belongs to them alone. It may be shared by the edges of one node into several tiers
  (a fork), and by those into one union (a fan-in), whose writers must then pack, encrypt and order alike. Which input a
  row of a union came by is told by `merge: {how: union, origin: COLUMN}`.
- `group` of a tier names a group of hosts: `at` of a member is then the `--name` of a `scribengin node`, or the name of its
  machine. Where flows are managed the tier runs there only, on the one with the lowest cost that answers and has room; where
  there is none it waits, and `status` says so ([control](control.md#several-hosts)). A `run` runs all tiers where it is.
- `to` of an edge or a sink names a group, or one of its members: `wan`, `wan.second`. `at` of a member gives, for a sink
  or a channel in Kafka, its `bootstrap`; for a database or a store its `server` or `url`. For files, Delta tables and a
  channel in a folder it is a folder, and the node's own `path` lies below it: `at: /mnt/a` and `path: out/kept` come to
  `/mnt/a/out/kept`. All else the members share, logins too. Some types, and what is written by key, cannot go to a group
  (`group-sink`): [which can](tiers.md#which-sinks-can-go-to-a-group).
- Of a group the member with the lowest cost is taken that answers, equal ones in turn. One that does not is left out for
  a second, twice as long after each further failure, a minute at most; then one Batch tries it. A Batch stays with the
  member for which it is decided; see [guarantees](guarantees.md#groups). An edge to a group is `durability: end_to_end`.
  Where flows are managed a member can be taken out, and get another cost, while they run: [groups](control.md#groups).
"""

TIME = """\
## Time

- The zone is UTC on every machine. A `TIMESTAMP` is an instant, written as ISO 8601; without an offset it is UTC.
  Numbers are no timestamps: write `timestamp_millis(x)` in SQL. It is written as ISO 8601 with `Z` and six decimals.
- A watermark `COLUMN DURATION` stands on a source or on a step whose output has the column, and is inherited by what
  reads it; of several inputs the slowest rules. Rows that are more than the duration older than the newest are late:
  a step that keeps state does not take them. By its `late` they become dead letters with their bytes, both times and the
  reason `late` (the default), are dropped and counted, or stop the Query (`error`), whatever its `on_error` says.
- A row without a time is a dead letter (`null-time`) where a window, or a join within a span of time, is to take it.
- `plan` has a hint on each step by which Spark leaves out rows that no predicate names: `explode` of null or of an empty
  array, a null in the key of a join, in the condition of a `JOIN` or in the key of `dedupe`, equal rows of `INTERSECT`.
- Windows lie on UTC's clock, unless `aggregate: {window: {time: ts, size: 1d, time_zone: Europe/Berlin}}` names another:
  a day is then from midnight to midnight there, 23 or 25 hours long where the clocks change. Windows of whole hours
  can do that, if they do not slide; of the hour that the clocks show twice both halves are in the same window. Without
  it, and in SQL's `window(…)`, a window begins at a multiple of its size since the beginning of 1970 in UTC.
- With `--once` a window that the watermark has not passed stays open; the summary says which, until when, and which record lets it
  out: [When an input is finished](guarantees.md#when-an-input-is-finished).
- A join of two streams needs `time` and `within`, `dedupe` and `merge: {how: intersect}` too where they shall not
  remember every key for ever.
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

`schema:` on the step gives the columns of its output; without it they are those of its input. A surplus key, a wrong
type or an exception makes a dead letter that names the key or the line. The `.py` files under the flow's folder
travel to the executors.

## A flow in Python

A flow can be written in Python too; it is the same flow, and `scribengin show FLOW` prints it as YAML. A flow file in
Python ends in `.py` and sets the variable `flow`:

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
| a sink | `.to("files", path=…, format=…)`; hand every sink to `Flow(…)` |
| `tiers`, `edges`, `groups` | `Flow(…, tiers={"near": {"steps": ["known"]}}, edges={"known -> hot": {"compression": "zstd"}})` |
| `max_dead` | `Flow(…, max_dead="1%")`, `Flow(…, max_dead={"run": "1%", "then": "degrade"})` |
| `max_delay`, `alerts` | `Flow(…, max_delay="5m", alerts={"stuck": {"when": "no progress for 5m"}})` |

A source, a list of Python steps and a sink are shorter as an `App`: [utilities](utilities.md#app).

Every step takes `id`, `require`, `on_error` and `watermark`, one that keeps state `late` too. Without `id` it is named after its source
and operation. Texts mean what they mean in the YAML form. A mistake is told at the line of its call. `validate` never runs code of
yours: of a `.py` file it checks the syntax, and `plan` executes it and checks the rest.
"""

MAX_DEAD = """\
### Too many dead letters

Without `max_dead` any number of records may become dead letters. If they are more than half of the records that a Query has read in a
run, `run` ends with exit status 1 and says so first, and `status` of a running flow says so too. `max_dead: 100%` accepts that.

```yaml
max_dead: 1%
```

A Query stops with the error `max-dead` before it commits a Batch in which more than 1 % of the records are dead letters, or with which
more than 1 % of all records of the run would be. Nothing of that Batch is visible then, and none of its dead letters is kept: the error
names the step, the reason and the first record. Fix the step or the data and start again: the Batch runs again, with all of its records.
A sink that commits each task output on its own (`visible: unit`), or that Spark writes, has written the Batch before it is counted: it is
committed with its dead letters, and the Query stops behind it. So is a Batch of which a store refuses records after the commit.

With `then: degrade` the Query continues. The flow is `degraded` until it is resumed or restarted, and `run` ends with exit status 1.

A percentage of a small Batch is soon reached: one bad record of ten are 10 %. `max_dead: {run: 100}` bounds the number instead. Dead
letters that are replayed are not counted, neither as records nor, if they die again, as dead letters. Records that `on_error: drop` or
`late: drop` drops are not dead letters. `scribengin test` does not look at `max_dead`.
"""

ALERTS = """\
## Delay and alerts

They are for flows that a control plane runs; `run` passes them over. [Watching](metrics.md) says how they are looked at and sent.

```yaml
max_delay: 5m

alerts:
  stuck:   {when: no progress for 5m}
  behind:  {when: lag over 100000 rows for 2m, webhook: "https://hooks.example.org/flows"}
  late:    {when: lag over 60s for 2m, command: [notify, ops]}
  letters: {when: dead letters over 100 in 10m}
  loop:    {when: restarts over 3 in 10m}
```

| `when` | it fires |
|---|---|
| `no progress for TIME` | something waits, or is under way, and no Batch came through for so long |
| `lag over N rows for TIME` | more than N rows have waited, at sources and in channels, all that time |
| `lag over TIME for TIME` | the oldest thing that waits was older than the first, for all of the second |
| `dead letters over N in TIME` | more than N records became dead letters within that time |
| `restarts over N in TIME` | workers, or Queries in them, were started again more than N times within that time |
"""

TESTS = """\
## Tests

`scribengin test FLOW` runs them; `run` passes them over. [Testing flows](testing.md) says how.

```yaml
tests:
  - name: exactly five hundred is not enough
    given: {tweets: [{id: 1, user: a, text: "#PresidentialDebate", followers: 5001, retweets: 500, ts: "2026-01-01T00:00:00Z"}]}
    expect: {kept: []}
```
"""

EDITORS = """\
## Editors

`scribengin schema > flow.schema.json` writes a JSON Schema with all keys and options. Editors with a YAML language
server use it when the file begins with `# yaml-language-server: $schema=flow.schema.json`.
"""
