"""The dialect of text and CSV: line ends, delimiter and quotes of cells, cells that mean null, encoding.

One `Dialect` is built from a node's options, and all CSV code uses it. Imports neither Arrow nor NumPy: the functions at the end check the
options when a flow is validated.
"""

from __future__ import annotations

import codecs
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

NO_QUOTE = "none"
BLANKS = " \t"
"""the characters that `trim` removes"""
_MOST_DELIMITER = 16
_BACKSLASH = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f", "v": "\v", "0": "\0"}
"""the meaning of a character after a backslash in PostgreSQL, MySQL and Hive"""
BACKSLASH_NULL = "\\N"
"""the cell that these systems write for null"""


@dataclass(frozen=True, slots=True)
class LineEnd:
    """`mark` ends a line. If it is `loose`, carriage returns before the mark do not belong to the line."""

    mark: bytes
    loose: bool

    def stripped(self, line: bytes) -> bytes:
        """The record of a line, which is given without its mark."""
        return line.rstrip(b"\r") if self.loose else line


AUTO, LF, CRLF, CR = LineEnd(b"\n", loose=True), LineEnd(b"\n", loose=False), LineEnd(b"\r\n", loose=False), LineEnd(b"\r", loose=False)
LINE_ENDS = {"auto": AUTO, "lf": LF, "crlf": CRLF, "cr": CR}
"""by the value of `line_end`"""
_LOOKED_AT = 2**15


def line_end_of(option: str, head: bytes) -> LineEnd:
    """The line end of a file with this beginning: with `auto` a CR if there is no LF in its first 32 KiB."""
    if option == "auto" and b"\n" not in (head := head[:_LOOKED_AT]) and b"\r" in head[:-1]:
        return CR
    return LINE_ENDS[option]


@dataclass(frozen=True, slots=True)
class Dialect:
    """The CSV dialect of one source; the defaults are RFC 4180. `quote` and `escape` may be None."""

    delimiter: str = ","
    quote: str | None = '"'
    escape: str | None = None
    nulls: tuple[str, ...] = ("",)
    quoted_null: Literal["never", "typed", "always"] = "never"
    trim: bool = False
    comment: str | None = None
    extra_cells: Literal["refuse", "empty", "drop"] = "refuse"
    line_end: LineEnd = AUTO
    encoding: str = "utf-8"
    """encoding of single values; bytes of files are already UTF-8 here"""

    @staticmethod
    def of(options: Mapping[str, Any]) -> Dialect:
        """Build it from the options of a source or a `parse` step. Raises ValueError for invalid options."""
        dialect = Dialect(**{name: given for name in _PLAIN if (given := options.get(name)) is not None})
        null = options.get("null")
        if null is not None:
            dialect = _with(dialect, nulls=(null,) if isinstance(null, str) else tuple(null))
        if dialect.quote == NO_QUOTE:
            dialect = _with(dialect, quote=None)
        if options.get("line_end") is not None:
            dialect = _with(dialect, line_end=LINE_ENDS[options["line_end"]])
        for name, check in CHECKS.items():
            if options.get(name) is not None and (fault := check(options[name])) is not None:
                raise ValueError(f"`{name}` {fault[0]}; {fault[1]}")
        for name, message, remedy in faults_together(options):
            raise ValueError(f"`{name}` {message}; {remedy}")
        return dialect

    def ending(self, line_end: LineEnd) -> Dialect:
        """A copy with this line end."""
        return self if line_end == self.line_end else _with(self, line_end=line_end)

    @property
    def is_plain(self) -> bool:
        """True if a record without a double quote can be split at the delimiter, and has at most one text for null."""
        return self.quote == '"' and self.escape is None and len(self.nulls) == 1 and not self.trim

    @property
    def blanks(self) -> str:
        """The characters that `trim` removes, without those of the delimiter."""
        return "".join(blank for blank in BLANKS if blank not in self.delimiter)

    @property
    def raw_nulls(self) -> frozenset[str]:
        """The unquoted cells that mean null, as written in the file."""
        return frozenset(self.nulls) | ({BACKSLASH_NULL} if self.escape == "\\" else frozenset())

    def unescaped(self, text: str) -> str:
        """A cell without its escapes."""
        escape = self.escape
        if escape is None or escape not in text:
            return text
        letters = _BACKSLASH if escape == "\\" else {}
        parts = text.split(escape)
        found = [parts[0]]
        index = 1
        while index < len(parts):
            part = parts[index]
            if part:
                found.append(letters.get(part[0], part[0]) + part[1:])
            else:  # two in a row are one; one at the end is itself
                found.append(escape)
                index += 1
                if index < len(parts):
                    found.append(parts[index])
            index += 1
        return "".join(found)


_PLAIN = ("delimiter", "quote", "escape", "quoted_null", "trim", "comment", "extra_cells", "encoding")
"""options whose values are those of the field of the same name"""


def _with(dialect: Dialect, **changes: Any) -> Dialect:
    from dataclasses import replace

    return replace(dialect, **changes)


# ---------------------------------------------------------------------------------------------------------------- encodings

_SINGLE = frozenset(
    {
        *(f"cp{number}" for number in range(1250, 1259)),
        *(f"iso8859-{number}" for number in (*range(1, 12), 13, 14, 15, 16)),
        *("cp437", "cp850", "cp852", "cp855", "cp858", "cp862", "cp866", "cp874", "koi8-r", "koi8-u", "mac-roman", "ascii"),
    }
)
_MANY = frozenset({"gb2312", "gbk", "gb18030", "big5", "big5hkscs", "shift_jis", "cp932", "euc_jp", "euc_kr", "cp949"})
_WIDE = {"utf-16": 2, "utf-16-le": 2, "utf-16-be": 2, "utf-32": 4, "utf-32-le": 4, "utf-32-be": 4}
"""encoding → bytes of a code unit"""
_UTF_8 = frozenset({"utf-8", "utf-8-sig"})
MARKS = ((b"\xff\xfe\0\0", "utf-32"), (b"\0\0\xfe\xff", "utf-32"), (b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"))
"""(byte order mark at the beginning of a file, its encoding)"""


def codec_of(encoding: str) -> str | None:
    """The codec of that name, `utf-8` for all names of UTF-8; None if it is not supported."""
    try:
        name = codecs.lookup(encoding).name
    except (LookupError, ValueError):
        return None
    if name in _UTF_8:
        return "utf-8"
    return name if name in _SINGLE or name in _MANY or name in _WIDE else None


def unit_bytes(encoding: str) -> int:
    """The number of bytes of a line feed."""
    return _WIDE.get(codec_of(encoding) or "", 1)


def marked_encoding(head: bytes) -> str | None:
    """The encoding by the byte order mark of a file; None without one, or for that of UTF-8. UTF-16 and UTF-32 of ASCII are recognised by
    their zero bytes, also without a mark."""
    marked = next((encoding for mark, encoding in MARKS if head.startswith(mark)), None)
    if marked is not None or len(head) < 8:
        return marked
    start = head[: len(head) // 4 * 4][:256]
    zeros = [start[at::4].count(0) for at in range(4)]
    some = len(start) // 4
    by_place = "".join("0" if count > 0.9 * some else "x" for count in zeros)
    return {"x000": "utf-32-le", "000x": "utf-32-be", "x0x0": "utf-16-le", "0x0x": "utf-16-be"}.get(by_place)


def guess_encoding(head: bytes) -> str:
    """The encoding of a file with these first bytes: UTF-8 if they are valid in it, else Windows-1252, or ISO-8859-1 if they are not valid
    in that."""
    marked = marked_encoding(head)
    if marked is not None:
        return marked
    try:
        head.decode()
    except UnicodeDecodeError as error:
        if error.end >= len(head) and error.reason == "unexpected end of data":
            return "utf-8"
        try:
            head.decode("cp1252")
        except UnicodeDecodeError:
            return "iso-8859-1"
        return "windows-1252"
    return "utf-8"


def _undecodable(error: UnicodeError) -> tuple[str, int]:
    """Replace bytes that the encoding does not have by a byte that UTF-8 does not have, so that this record, and no other, becomes a dead
    letter."""
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return "\udcff", error.end


codecs.register_error("scribengin.undecodable", _undecodable)


class Transcoder:
    """Converts from an encoding to UTF-8, part by part. Bytes that the encoding does not have become a byte that UTF-8 does not have."""

    def __init__(self, encoding: str) -> None:
        codec = codec_of(encoding)
        assert codec is not None
        self._decoder = codecs.getincrementaldecoder(codec)("scribengin.undecodable")

    def __call__(self, data: bytes, *, final: bool = False) -> bytes:
        """The part in UTF-8."""
        return self._decoder.decode(data, final).encode("utf-8", "surrogateescape")


def in_utf_8(data: bytes, encoding: str) -> bytes:
    """The whole data in UTF-8."""
    return data if codec_of(encoding) == "utf-8" else Transcoder(encoding)(data, final=True)


def undecodable(error: UnicodeDecodeError, what: str, encoding: str) -> str:
    """The message for a record whose bytes are not valid text."""
    if encoding == "utf-8":
        return (
            f"byte {error.start} of the {what} is not UTF-8: {error.reason}; if the file has another encoding, set it, such as "
            "encoding: windows-1252"
        )
    return f"byte {error.start} of the {what}, in UTF-8, is not {encoding}"


# ------------------------------------------------------------------------------------------------------------------- checks

_Fault = tuple[str, str]
"""(message, remedy)"""


def _delimiter(value: Any) -> _Fault | None:
    if value in ("\\t", "\\\\t"):
        return "is a backslash and a t", 'for a tab, use double quotes: "\\t"'
    if not value or len(value) > _MOST_DELIMITER:
        return f"has {len(value)} characters", 'write the separator of cells, such as ";" or "||"'
    if any(mark in value for mark in "\r\n\0"):
        return f"is {value!r}, which contains a line end", 'write the separator of cells, such as ";" or "\\t"'
    return None


def _quote(value: Any) -> _Fault | None:
    return None if value == NO_QUOTE else _mark(value, 'write one, such as "\'", or none')


def _escape(value: Any) -> _Fault | None:
    return _mark(value, 'write one, such as "\\\\"')


def _mark(value: Any, remedy: str) -> _Fault | None:
    if len(value) != 1 or not value.isascii() or value.isalnum() or value in "\r\n\0 \t":
        return f"is {value!r}, not one ASCII character other than a letter, a digit or a blank", remedy
    return None


def _null(value: Any) -> _Fault | None:
    texts = (value,) if isinstance(value, str) else value
    if not texts:
        return "is empty", 'write a list of cells that mean null, such as ["\\\\N", ""]'
    if any(mark in text for text in texts for mark in "\r\n"):
        return "contains a line end", "write cells of one line"
    return None


def _comment(value: Any) -> _Fault | None:
    if not value.strip() or "\n" in value or "\r" in value:
        return f"is {value!r}", 'write the text that comment lines begin with, such as "#"'
    return None


def _encoding(value: Any) -> _Fault | None:
    if codec_of(value) is None:
        return f"is {value!r}, which is not a known encoding", "write one such as utf-8, windows-1252, iso-8859-1, utf-16 or shift_jis"
    return None


CHECKS = {
    "delimiter": _delimiter,
    "quote": _quote,
    "escape": _escape,
    "null": _null,
    "comment": _comment,
    "encoding": _encoding,
}
"""option → the check of a value: returns the error, or None if it is valid"""


def sink_delimiter(value: Any) -> _Fault | None:
    """The error of a sink's delimiter, or None."""
    found = _delimiter(value)
    if found is None and (len(value) != 1 or not value.isascii() or value == '"'):
        return f"is {value!r}, not one ASCII character that can separate cells", 'write one, such as ";" or "\\t"'
    return found


def sink_null(value: Any) -> _Fault | None:
    """The error of the cell that a sink writes for null, or None."""
    return _null(value)


def faults_together(options: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """(option, message, remedy) for options that are valid alone but not together."""
    delimiter = options.get("delimiter") or ","
    quote, escape, comment = options.get("quote") or '"', options.get("escape"), options.get("comment")
    found = []
    if quote != NO_QUOTE and quote in delimiter:
        found.append(
            (
                "delimiter" if options.get("delimiter") else "quote",
                f"contains the quote character {quote}",
                "write another one, or quote: none",
            )
        )
    if escape and escape in delimiter:
        found.append(("escape", "is also in the delimiter", "write another one"))
    if escape and escape == quote:
        found.append(("escape", "is the same as the quote", "take it out; a doubled quote inside quotes is always read as one quote"))
    if comment and quote != NO_QUOTE and comment.startswith(quote):
        found.append(("comment", "begins with the quote", "write another one, or quote: none"))
    if quote == NO_QUOTE and options.get("quoted_null") not in (None, "never"):
        found.append(("quoted_null", "has no effect with quote: none", "take it out"))
    return found
