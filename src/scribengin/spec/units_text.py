"""Durations and sizes as a flow file writes them: texts that read back as the same number."""

from __future__ import annotations

from decimal import Decimal

_DURATIONS = (("d", 86400.0), ("h", 3600.0), ("m", 60.0), ("s", 1.0), ("ms", 0.001))
_SIZES = (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10), ("B", 1))


def show_duration_exactly(seconds: float) -> str:
    """A duration that reads back as the same number of seconds.

    >>> show_duration_exactly(600.0), show_duration_exactly(0.25), show_duration_exactly(90.0)
    ('10m', '250ms', '90s')
    """
    for unit, size in _DURATIONS:
        count = round(seconds / size)
        if count and float(count) * size == seconds:
            return f"{count}{unit}"
    return f"{Decimal(repr(seconds)):f}s" if seconds else "0s"


def show_bytes_exactly(count: int) -> str:
    """A size that reads back as the same number of bytes.

    >>> show_bytes_exactly(67108864), show_bytes_exactly(1000)
    ('64MiB', '1000B')
    """
    return next(f"{count // size}{unit}" for unit, size in _SIZES if count % size == 0 and (count or size == 1))


def show_bound(kind: str, bound: float) -> str:
    """A number of an option or key of that kind, with its unit if it has one.

    >>> show_bound("bytes", 65536), show_bound("duration", 0.001), show_bound("int", 1)
    ('64KiB', '1ms', '1')
    """
    if kind == "bytes":
        return show_bytes_exactly(int(bound))
    if kind == "duration":
        return show_duration_exactly(bound)
    return str(int(bound)) if float(bound).is_integer() else str(bound)
