"""What a flow can say of `type: files`. Imports neither Spark nor Arrow."""

import re
from dataclasses import replace

from scribengin.core.options import REQUIRED, NodeType, Option
from scribengin.formats.dialect import CHECKS, LINE_ENDS, sink_delimiter, sink_null

_FORMATS = ("json", "csv", "text", "parquet")
_LINES = ("json", "csv", "text")
_CSV = ("csv",)

DELIMITER = Option("delimiter", "text", "csv: what stands between two cells", ",", example='";"', formats=_CSV, check=CHECKS["delimiter"])
CELLS_READ = (
    DELIMITER,
    Option(
        "null", "words", "csv: the cell that means null, or a list of such", "", example='["NA", ""]', formats=_CSV, check=CHECKS["null"]
    ),
    Option(
        "quote",
        "text",
        'csv: what cells are quoted with, `"` by default; `none`: quotes mean nothing, as in most files with tabs',
        None,
        example="none",
        formats=_CSV,
        check=CHECKS["quote"],
    ),
    Option(
        "escape",
        "text",
        "csv: what takes its meaning from the character behind it; a backslash makes `\\n` a line feed and so on, and a cell `\\N` null",
        None,
        example='"\\\\"',
        formats=_CSV,
        check=CHECKS["escape"],
    ),
    Option(
        "quoted_null",
        "choice",
        "csv: whether a cell in quotes can be null: `typed` in columns other than STRING and BINARY, `always` in all",
        "never",
        ("never", "typed", "always"),
        formats=_CSV,
    ),
    Option("trim", "bool", "csv: blanks around cells, and around their quotes, are no part of them", False, formats=_CSV),
    Option(
        "extra_cells",
        "choice",
        "csv: cells behind the last column: `refuse` makes the record a dead letter, `empty` drops them if all are empty, `drop` drops "
        "them",
        "refuse",
        ("refuse", "empty", "drop"),
        formats=_CSV,
    ),
)
"""how cells are read, wherever they come from"""
ENCODING = Option(
    "encoding",
    "text",
    "csv, text: what the bytes are, such as `windows-1252`, `utf-16`, `shift_jis`",
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
        "csv: column → its name in the header, where that is another",
        {},
        example='{amount: "Total Amount"}',
        formats=_CSV,
    ),
    Option(
        "header_names",
        "choice",
        "csv: how the names in the header are compared with the columns: `trim` without blanks around them, `loose` without case, blanks "
        "and marks (`Trip Distance` is `trip_distance`)",
        "exact",
        ("exact", "trim", "loose"),
        formats=_CSV,
    ),
    *CELLS_READ,
    Option(
        "comment",
        "text",
        "csv, text: lines that begin so are not records",
        None,
        example='"#"',
        formats=_LINE_FILES,
        check=CHECKS["comment"],
    ),
    Option("skip_lines", "int", "csv, text: so many lines at the start of a file are not read", 0, example="2", low=0, formats=_LINE_FILES),
    Option(
        "line_end",
        "choice",
        "csv, text: what ends a line; `auto`: LF, with any CR before it, or CR in a file without LF in its first 32 KiB (not of `growing`)",
        "auto",
        tuple(LINE_ENDS),
        formats=_LINE_FILES,
    ),
    ENCODING,
)
"""of every source of files, wherever they lie"""
READ_AS = tuple(option.name for option in CSV_READ)
"""the names of all of them"""
CSV_WRITTEN = (
    Option("header", "bool", "csv: write the column names first", True, formats=_CSV),
    Option("delimiter", "text", "csv: what stands between two cells", ",", example='";"', formats=_CSV, check=sink_delimiter),
    Option("null", "text", "csv: the cell that means null", "", example="NA", formats=_CSV, check=sink_null),
)
"""of every sink"""
METADATA = Option(
    "metadata",
    "columns",
    "columns that say where a record stood; as a mapping under other names. `line` (from 1) and `offset` (in bytes) are of text formats, "
    "`row` (from 0) of parquet and avro; `file_time` is that of the file's last change",
    {},
    ("file", "file_name", "file_size", "file_time", "line", "offset", "row"),
    example="[file, line]",
)
PARTITION_COLUMNS = Option(
    "partition_columns",
    "columns",
    "columns that the folders `column=value` of a file's path say, with their types; a list takes these from `schema`, else STRING",
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
    "how records stand in a file, where it is not an object a line; such a file is read whole, by one task",
    None,
    example='{records: "$.Records[*]"}',
    formats=("json",),
    keys=(
        Option(
            "shape",
            "choice",
            "`lines`: an object a line; `array`: one list of objects; `concatenated`: objects behind one another, over any lines; "
            "`auto`: by how each file begins",
            "lines",
            ("lines", "array", "concatenated", "auto"),
        ),
        Option(
            "records", "text", "the list, inside of an object, whose items are the records: keys and `[*]`", "", example='"$.Records[*]"'
        ),
        _JSON_TEXT,
    ),
)
MULTILINE = Option(
    "multiline",
    "section",
    "several lines are one record; such a file is read by one task",
    None,
    example=r"{start: '^\d{4}-'}",
    formats=("text",),
    keys=(
        Option(
            "start",
            "text",
            "a regular expression (Python's): a record begins with each line where it is found",
            REQUIRED,
            example=r"'^\d{4}-'",
        ),
    ),
)
MAX_RECORD = Option(
    "max_record",
    "bytes",
    "a longer record is a dead letter with its first 64 KiB",
    16 * 2**20,
    example="16MiB",
    low=1024,
    formats=_LINES,
)

TIME = Option(
    "time",
    "choice",
    "what happens to a time that is finer than microseconds: `exact` makes its record a dead letter, `truncate` cuts the rest off",
    "exact",
    ("exact", "truncate"),
    formats=("json", "csv", "parquet", "avro"),
)


def records_read(things: str) -> tuple[Option, ...]:
    """How records stand in `things`, "files" or "objects", of every source of them."""
    compressed = f"of the {things}; `auto` goes by the suffix"
    compression = Option("compression", "choice", compressed, "auto", ("auto", "none", "gzip", "zstd", "bzip2"), formats=_LINES)
    return (MAX_RECORD, TIME, compression, *CSV_READ, METADATA, PARTITION_COLUMNS, JSON, MULTILINE)


ROLL_KEYS = (
    Option("size", "bytes", "merge when so much is there", 128 * 2**20, example="128MiB", low=1),
    Option("every", "duration", "merge what has waited for so long, whatever its size", 300.0, example="5m", low=0.1),
)

PARTITION_BY = Option(
    "partition_by",
    "list",
    "columns that become folders (`column=value/`); as the last one a mapping: folders by event time",
    (),
    example="[country]",
    keys=(
        Option("time", "text", "the TIMESTAMP by which rows go to folders; it stays in the files", REQUIRED, example="ts"),
        Option("path", "text", "the folders, of `%Y`, `%m`, `%d`, `%H`, `%M`", REQUIRED, example="dt=%Y-%m-%d/hour=%H"),
        Option("time_zone", "text", "of the folders' names", "UTC", example="Europe/Berlin"),
    ),
)
_DELAY = Option("delay", "duration", "closed when rows so much newer than its end have come", REQUIRED, example="10m", low=0)
_LATE = Option("late", "choice", "what happens to rows for a closed folder", "dead", ("dead", "reopen"))
CLOSE = Option(
    "close",
    "section",
    "of folders by time: a marker says when one is complete",
    None,
    example="{delay: 10m, late: reopen}",
    keys=(_DELAY, _LATE),
)
CLOSE_FOR_GOOD = replace(
    CLOSE,
    example="{delay: 10m}",
    keys=(_DELAY, replace(_LATE, doc="what happens to rows for a closed folder; `reopen` is of `type: files`")),
)
"""of sinks whose folders stay closed; a check says why (`close-reopen`)"""

SOURCE = NodeType(
    type="files",
    role="source",
    doc="Reads the files of a folder, those that arrive while it runs too. Each file is read once, in path order.",
    options=(
        Option("path", "path", "a folder, a file, or a glob", REQUIRED, example="data/*.jsonl"),
        Option("format", "choice", "how the bytes are read", REQUIRED, (*_FORMATS, "avro"), example="json"),
        Option(
            "parse",
            "choice",
            "`strict` keeps the parse contract; `spark` is Spark's own reader, with its deviations",
            "strict",
            ("strict", "spark"),
            formats=("json", "csv"),
        ),
        Option("max_files", "int", "files one Batch takes at most", None, example="100", low=1, pace=True, of_streams=True),
        Option(
            "max_bytes",
            "bytes",
            "bytes one Batch takes at most (at least one file)",
            None,
            example="256MiB",
            low=1,
            pace=True,
            of_streams=True,
        ),
        Option("split", "bytes", "how much of a large uncompressed file one task reads", 32 * 2**20, example="64MiB", low=65536, pace=True),
        Option("growing", "bool", "read what is added to files, through log rotations too; takes whole lines only", False, formats=_LINES),
        Option(
            "settle",
            "duration",
            "a file must be unchanged for so long before it is taken (0 under --once)",
            2.0,
            example="2s",
            pace=True,
            of_streams=True,
        ),
        Option("on_change", "choice", "what a file does that changed after it was taken", "stop", ("stop", "ignore")),
        Option(
            "when_done",
            "choice",
            "what becomes of a file once all of it is acknowledged: committed at the ends of all that the flow makes of it",
            "keep",
            ("keep", "delete", "archive"),
            pace=True,
            of_streams=True,
        ),
        Option(
            "archive",
            "path",
            "the folder that `when_done: archive` moves files to, with the folders they lie in",
            pace=True,
            of_streams=True,
        ),
        *records_read("files"),
    ),
    abilities=frozenset({"replayable", "bounded", "static", "growing", "timely"}),
)

SINK = NodeType(
    type="files",
    role="sink",
    doc="Writes files that readers see whole or not at all, each record once.",
    options=(
        Option("path", "path", "the folder; this flow alone writes there", REQUIRED, example="out/kept", by_member=True),
        Option("format", "choice", "how rows are written", REQUIRED, _FORMATS, example="parquet"),
        Option(
            "compression",
            "choice",
            "of the files; by default none for text formats, zstd for parquet",
            "auto",
            ("auto", "none", "gzip", "zstd", "snappy"),
        ),
        PARTITION_BY,
        Option(
            "roll",
            "section",
            "committed files stay hidden until they are merged to large ones",
            None,
            example="{size: 128MiB, every: 5m}",
            pace=True,
            keys=ROLL_KEYS,
        ),
        Option("segment", "bytes", "a task begins another file when one has so much", None, example="1GiB", low=1, pace=True),
        CLOSE,
        Option(
            "keep", "duration", "folders by time that ended so long ago, by event time, are deleted", None, example="30d", low=1, pace=True
        ),
        *CSV_WRITTEN,
        Option(
            "evolve",
            "choice",
            "how the columns may differ from those of the files in the folder: `strict` not at all, `add` by columns that come or go, "
            "`any` by their types too",
            "add",
            ("strict", "add", "any"),
        ),
    ),
    abilities=frozenset({"exactly_once", "append"}),
)

_PATH = re.compile(r"\$((?:\.[A-Za-z_][\w-]*|\['[^']+'\])*)\[\*\]\Z")
_KEY = re.compile(r"\.([A-Za-z_][\w-]*)|\['([^']+)'\]")


def list_keys(path: str) -> tuple[str, ...]:
    """The keys of `$.a.b[*]` (`json: {records: …}`), which lead to the list of the records. Raises ValueError for other paths.

    >>> list_keys("$.Records[*]"), list_keys("$[*]")
    (('Records',), ())
    """
    found = _PATH.match(path)
    if found is None:
        raise ValueError(f"{path!r} is not a path to a list, such as $.Records[*]")
    return tuple(plain or quoted for plain, quoted in _KEY.findall(found[1]))
