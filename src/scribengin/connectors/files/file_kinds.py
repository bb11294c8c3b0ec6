"""The kind of a file by its first bytes, if these contradict its name and its options."""

from __future__ import annotations

_MAGIC = (
    (b"\x1f\x8b", "gzip"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"BZh", "bzip2"),
    (b"\xfd7zXZ\x00", "xz"),
    (b"PK\x03\x04", "a zip archive"),
    (b"PK\x05\x06", "an empty zip archive"),
    (b"\x04\x22\x4d\x18", "lz4"),
    (b"\xff\x06\x00\x00sNaPpY", "snappy"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
    (b"PAR1", "Parquet"),
    (b"Obj\x01", "Avro"),
    (b"ORC", "ORC"),
    (b"SQLite format 3\x00", "an SQLite database"),
    (b"%PDF-", "PDF"),
)
_TAR_AT = 257
MAGIC_BYTES = 512
"""number of first bytes that are needed"""
_READ = ("gzip", "zstd", "bzip2")


def kind_of(head: bytes) -> str:
    """The kind of a file with these first bytes; empty for text, and for unknown kinds.

    >>> kind_of(b"PAR1..."), kind_of(b"id,name")
    ('Parquet', '')
    """
    if head[_TAR_AT : _TAR_AT + 5] == b"ustar":
        return "a tar archive"
    kind = next((kind for magic, kind in _MAGIC if head.startswith(magic)), "")
    if kind == "bzip2" and head[4:10] not in (b"1AY&SY", b"\x17rE8P\x90"):
        return ""
    return "" if kind == "ORC" and head[3:4] not in (b"\x08", b"\x0a", b"\x12") else kind


def why_unlike(head: bytes, compression: str) -> str:
    """Why a file with these first bytes cannot be read as text with this compression (`none`, `gzip`, …), and what to do; empty if it
    can."""
    kind = kind_of(head)
    if not head or kind == (compression if compression != "none" else ""):
        return ""
    if compression == "none":
        if kind in _READ:
            return f"the file is {kind}, by its first bytes, and its name does not say so: rename it, or set compression: {kind}"
        known = kind in ("Parquet", "Avro")
        return f"the file is {kind}, by its first bytes: {f'set format: {kind.lower()}' if known else 'unpack or convert it first'}"
    found = f"it is {kind}" if kind else "it is text" if _is_text(head) else f"it begins with {head[:4].hex(' ')}"
    remedy = f"set compression: {kind if kind in _READ else 'none'}" if kind in _READ or not kind else "unpack it first"
    return f"the file is not {compression}, by its first bytes; {found}: rename it, or {remedy}"


def why_unlike_inside(head: bytes, compression: str) -> str:
    """The same for the contents of a compressed file, by its first bytes."""
    kind = kind_of(head)
    return f"the {compression} file contains {kind}, not text: unpack it first" if kind else ""


def _is_text(head: bytes) -> bool:
    try:
        head[:-4].decode()
    except UnicodeDecodeError:
        return False
    return b"\0" not in head
