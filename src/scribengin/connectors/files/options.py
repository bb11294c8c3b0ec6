"""The options of `type: files`. Imports neither Spark nor Arrow."""

import re
from dataclasses import replace

from scribengin.core.options import REQUIRED, NodeType, Option
from scribengin.formats.dialect import CHECKS, LINE_ENDS, sink_delimiter, sink_null

_FORMATS = ("json", "csv", "text", "parquet")
_LINES = ("json", "csv", "text")
_CSV = ("csv",)

DELIMITER = Option("delimiter", "text", "csv: the separator of cells", ",", example='";"', formats=_CSV, check=CHECKS["delimiter"])
CELLS_READ = (
    DELIMITER,
    Option(
        "null",
        "words",
        "csv: the cell that means null, or a list of such cells",
        "",
        example='["NA", ""]',
        formats=_CSV,
        check=CHECKS["null"],
    ),
    Option(
        "quote",
        "text",
        'csv: the quote character, `"` by default; `none`: quotes have no meaning, as in most tab-separated files',
        None,
        example="none",
        formats=_CSV,
        check=CHECKS["quote"],
    ),
    Option(
        "escape",
        "text",
        "csv: the escape character; with a backslash `\\n` is a line feed and so on, and a cell `\\N` is null",
        None,
        example='"\\\\"',
        formats=_CSV,
        check=CHECKS["escape"],
    ),
    Option(
        "quoted_null",
        "choice",
        "csv: whether a quoted cell can be null: `typed`: in columns other than STRING and BINARY; `always`: in all",
        "never",
        ("never", "typed", "always"),
        formats=_CSV,
    ),
    Option("trim", "bool", "csv: remove blanks around cells and around their quotes", False, formats=_CSV),
    Option(
        "extra_cells",
        "choice",
        "csv: cells after the last column: `refuse` makes the record a dead letter, `empty` drops them if all are empty, `drop` drops them",
        "refuse",
        ("refuse", "empty", "drop"),
        formats=_CSV,
    ),
)
"""how cells are read, for any source of CSV"""
ENCODING = Option(
    "encoding",
    "text",
    "csv, text: the character encoding, such as `windows-1252`, `utf-16`, `shift_jis`",
    "utf-8",
    example="windows-1252",
    formats=("csv", "text"),
    check=CHECKS["encoding"],
)
_LINE_FILES = ("csv", "text")
CSV_READ = (
    Option("header", "bool", "csv: the first line names the columns", True, formats=_CSV),
    Option(
        "columns",
        "map",
        "csv: column → its name in the header, if that differs",
        {},
        example='{amount: "Total Amount"}',
        formats=_CSV,
    ),
    Option(
        "header_names",
        "choice",
        "csv: how header names are compared with columns: `trim` ignores blanks around them, `loose` ignores case, blanks and "
        "punctuation (`Trip Distance` is `trip_distance`)",
        "exact",
        ("exact", "trim", "loose"),
        formats=_CSV,
    ),
    *CELLS_READ,
    Option(
        "comment",
        "text",
        "csv, text: lines that begin with this text are not records",
        None,
        example='"#"',
        formats=_LINE_FILES,
        check=CHECKS["comment"],
    ),
    Option("skip_lines", "int", "csv, text: number of lines to skip at the start of a file", 0, example="2", low=0, formats=_LINE_FILES),
    Option(
        "line_end",
        "choice",
        (
            "csv, text: the line separator; `auto`: LF, with any CR before it, or CR in a file without LF in its first 32 KiB (not of "
            "`growing`)"
        ),
        "auto",
        tuple(LINE_ENDS),
        formats=_LINE_FILES,
    ),
    ENCODING,
)
"""how CSV is read, for every source of files, in any storage"""
READ_AS = tuple(option.name for option in CSV_READ)
"""the names of all of these options"""
CSV_WRITTEN = (
    Option("header", "bool", "csv: write the column names as the first line", True, formats=_CSV),
    Option("delimiter", "text", "csv: the separator of cells", ",", example='";"', formats=_CSV, check=sink_delimiter),
    Option("null", "text", "csv: the cell that means null", "", example="NA", formats=_CSV, check=sink_null),
)
"""how CSV is written, for every sink"""
METADATA = Option(
    "metadata",
    "columns",
    "columns with the position of a record; a mapping renames them. `line` (from 1) and `offset` (in bytes) are for text formats, `row` "
    "(from 0) for parquet and avro; `file_time` is the file's modification time",
    {},
    ("file", "file_name", "file_size", "file_time", "line", "offset", "row"),
    example="[file, line]",
)
PARTITION_COLUMNS = Option(
    "partition_columns",
    "columns",
    (
        "columns read from the folders `column=value` of a file's path, with their types; for a list, the types come from `schema`, else "
        "STRING"
    ),
    {},
    example="{country: STRING, day: DATE}",
)
_JSON_TEXT = Option("text", "list", "STRING columns that keep a value of any kind as its JSON text", (), example="[requestParameters]")
JSON_OF_MESSAGES = Option(
    "json", "section", "how values of JSON are read", None, example="{text: [requestParameters]}", formats=("json",), keys=(_JSON_TEXT,)
)
JSON = Option(
    "json",
    "section",
    "layout of records in a file, if not one object per line; such a file is read whole, by one task",
    None,
    example='{records: "$.Records[*]"}',
    formats=("json",),
    keys=(
        Option(
            "shape",
            "choice",
            "`lines`: one object per line; `array`: one list of objects; `concatenated`: consecutive objects over any number of lines; "
            "`auto`: detected from the start of each file",
            "lines",
            ("lines", "array", "concatenated", "auto"),
        ),
        Option("records", "text", "the list inside an object whose items are the records: keys and `[*]`", "", example='"$.Records[*]"'),
        _JSON_TEXT,
    ),
)
MULTILINE = Option(
    "multiline",
    "section",
    "several lines form one record; such a file is read by one task",
    None,
    example=r"{start: '^\d{4}-'}",
    formats=("text",),
    keys=(
        Option(
            "start",
            "text",
            "a Python regular expression: a record begins at each line that contains a match",
            REQUIRED,
            example=r"'^\d{4}-'",
        ),
    ),
)
MAX_RECORD = Option(
    "max_record",
    "bytes",
    "a longer record becomes a dead letter with its first 64 KiB",
    16 * 2**20,
    example="16MiB",
    low=1024,
    formats=_LINES,
)

TIME = Option(
    "time",
    "choice",
    "for times finer than microseconds: `exact` makes its record a dead letter, `truncate` cuts the rest off",
    "exact",
    ("exact", "truncate"),
    formats=("json", "csv", "parquet", "avro"),
)


def records_read(things: str) -> tuple[Option, ...]:
    """The options for the layout of records in `things`, "files" or "objects", for every source of them."""
    compressed = f"compression of the {things}; `auto` uses the suffix"
    compression = Option("compression", "choice", compressed, "auto", ("auto", "none", "gzip", "zstd", "bzip2"), formats=_LINES)
    return (MAX_RECORD, TIME, compression, *CSV_READ, METADATA, PARTITION_COLUMNS, JSON, MULTILINE)


ROLL_KEYS = (
    Option("size", "bytes", "merge when this size is reached", 128 * 2**20, example="128MiB", low=1),
    Option("every", "duration", "merge segments of this age, whatever their size", 300.0, example="5m", low=0.1),
)

PARTITION_BY = Option(
    "partition_by",
    "list",
    "columns that become folders (`column=value/`); the last one may be a mapping: folders by event time",
    (),
    example="[country]",
    keys=(
        Option("time", "text", "the TIMESTAMP column that selects the folder of a row; it stays in the files", REQUIRED, example="ts"),
        Option("path", "text", "pattern of the folders, with `%Y`, `%m`, `%d`, `%H`, `%M`", REQUIRED, example="dt=%Y-%m-%d/hour=%H"),
        Option("time_zone", "text", "time zone of the folder names", "UTC", example="Europe/Berlin"),
    ),
)
_DELAY = Option(
    "delay", "duration", "a folder is closed when rows arrive that are newer than its end by this time", REQUIRED, example="10m", low=0
)
_LATE = Option("late", "choice", "for rows of a closed folder", "dead", ("dead", "reopen"))
CLOSE = Option(
    "close",
    "section",
    "for folders by time: write a completion marker when a folder is complete",
    None,
    example="{delay: 10m, late: reopen}",
    keys=(_DELAY, _LATE),
)
CLOSE_FOR_GOOD = replace(
    CLOSE,
    example="{delay: 10m}",
    keys=(_DELAY, replace(_LATE, doc="for rows of a closed folder; `reopen` only with `type: files`")),
)
"""for sinks whose folders stay closed; a check explains why (`close-reopen`)"""

BY_TIME_CHECKS = (
    "scribengin.connectors.files.by_time_checks:folders_by_time_are_right",
    "scribengin.connectors.files.by_time_checks:closed_folders_stay_closed",
)
"""checks for sinks with the options `PARTITION_BY`, and `CLOSE` or `CLOSE_FOR_GOOD`"""

COMPRESSION_CHECK = "scribengin.connectors.files.checks:snappy_is_of_parquet"
SHAPE_CHECK = "scribengin.connectors.files.checks:shapes_can_be_read"
RECORD_CHECKS = ("scribengin.connectors.files.checks:metadata_fit_the_format", SHAPE_CHECK)
"""checks for sources with the options of `records_read`"""

SOURCE = NodeType(
    type="files",
    role="source",
    doc="Reads the files of a folder, including files that arrive while the flow runs. Each file is read once, in path order.",
    options=(
        Option("path", "path", "a folder, a file, or a glob", REQUIRED, example="data/*.jsonl"),
        Option("format", "choice", "format of the files", REQUIRED, (*_FORMATS, "avro"), example="json"),
        Option(
            "parse",
            "choice",
            "`strict` follows the parse contract; `spark` is Spark's own reader, which deviates from it",
            "strict",
            ("strict", "spark"),
            formats=("json", "csv"),
        ),
        Option("max_files", "int", "maximum files of one Batch", None, example="100", low=1, pace=True, of_streams=True),
        Option(
            "max_bytes",
            "bytes",
            "maximum bytes of one Batch (it takes at least one file)",
            None,
            example="256MiB",
            low=1,
            pace=True,
            of_streams=True,
        ),
        Option(
            "split", "bytes", "bytes of a large uncompressed file that one task reads", 32 * 2**20, example="64MiB", low=65536, pace=True
        ),
        Option(
            "growing",
            "bool",
            "read lines that are appended to files, also across log rotations; only complete lines are read",
            False,
            formats=_LINES,
        ),
        Option(
            "settle",
            "duration",
            "a file must be unchanged for this time before it is read (0 with --once)",
            2.0,
            example="2s",
            pace=True,
            of_streams=True,
        ),
        Option("on_change", "choice", "if a file changes after it was assigned to a Batch", "stop", ("stop", "ignore")),
        Option(
            "when_done",
            "choice",
            "what to do with a file once it is acknowledged: all rows derived from it are committed at the sinks",
            "keep",
            ("keep", "delete", "archive"),
            pace=True,
            of_streams=True,
        ),
        Option(
            "archive",
            "path",
            "the folder that `when_done: archive` moves files to, with their parent folders",
            pace=True,
            of_streams=True,
        ),
        *records_read("files"),
    ),
    abilities=frozenset(
        {"replayable", "bounded", "static", "growing", "timely", "inferable", "lenient"}
        | {"checks_columns", "checks_keys", "measures_backlog", "holds_back", "checks_local_place"}
    ),
    checks=RECORD_CHECKS,
)

SINK = NodeType(
    type="files",
    role="sink",
    doc="Writes files that readers see whole or not at all, each record once.",
    options=(
        Option("path", "path", "the folder; only this flow may write there", REQUIRED, example="out/kept", by_member=True),
        Option("format", "choice", "format of the files", REQUIRED, _FORMATS, example="parquet"),
        Option(
            "compression",
            "choice",
            "compression of the files; by default none for text formats, zstd for parquet",
            "auto",
            ("auto", "none", "gzip", "zstd", "snappy"),
        ),
        PARTITION_BY,
        Option(
            "roll",
            "section",
            "committed files stay hidden until they are merged into large ones",
            None,
            example="{size: 128MiB, every: 5m}",
            pace=True,
            keys=ROLL_KEYS,
        ),
        Option("segment", "bytes", "a task starts another file when one reaches this size", None, example="1GiB", low=1, pace=True),
        CLOSE,
        Option(
            "keep",
            "duration",
            "folders by time are deleted when they ended this long ago, by event time",
            None,
            example="30d",
            low=1,
            pace=True,
        ),
        *CSV_WRITTEN,
        Option(
            "evolve",
            "choice",
            "how the columns may differ from those of the files in the folder: `strict`: not at all; `add`: by added or missing columns; "
            "`any`: also by their types",
            "add",
            ("strict", "add", "any"),
        ),
    ),
    maintained_as="folder",
    abilities=frozenset(
        {"exactly_once", "append", "keeps_columns", "finds_unaccounted", "restores_files"}
        | {"checks_place", "checks_local_place", "takes_json"}
    ),
    checks=(COMPRESSION_CHECK, *BY_TIME_CHECKS),
)

_PATH = re.compile(r"\$((?:\.[A-Za-z_][\w-]*|\['[^']+'\])*)\[\*\]\Z")
_KEY = re.compile(r"\.([A-Za-z_][\w-]*)|\['([^']+)'\]")


def list_keys(path: str) -> tuple[str, ...]:
    """The keys of `$.a.b[*]` (`json: {records: …}`), which lead to the list of records. Raises ValueError for other paths.

    >>> list_keys("$.Records[*]"), list_keys("$[*]")
    (('Records',), ())
    """
    found = _PATH.match(path)
    if found is None:
        raise ValueError(f"{path!r} is not a path to a list, such as $.Records[*]")
    return tuple(plain or quoted for plain, quoted in _KEY.findall(found[1]))
