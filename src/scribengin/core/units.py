"""Durations and sizes as users and flow files write them; the unit is mandatory."""

from __future__ import annotations

import re
from decimal import Decimal

# Durations and sizes as a flow file writes them: texts that read back as the same number.


_DURATIONS = (("d", 86400.0), ("h", 3600.0), ("m", 60.0), ("s", 1.0), ("ms", 0.001))
_SIZES = (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10), ("B", 1))


def show_duration_exactly(seconds: float) -> str:
    """The shortest form of a duration that reads back as the same number of seconds.

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
    """A value of an option or key of that kind as a text, with its unit if the kind has one.

    >>> show_bound("bytes", 65536), show_bound("duration", 0.001), show_bound("int", 1)
    ('64KiB', '1ms', '1')
    """
    if kind == "bytes":
        return show_bytes_exactly(int(bound))
    if kind == "duration":
        return show_duration_exactly(bound)
    return str(int(bound)) if float(bound).is_integer() else str(bound)


_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_BYTES = {
    "B": 1,
    "kB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
}
_FORM = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)\Z")


def parse_duration_s(text: str) -> float:
    """Parse a duration; returns seconds. Units: ms, s, m (or min), h, d. Raises ValueError, which says what was found.

    >>> parse_duration_s("10m")
    600.0
    """
    return _parse(text, _SECONDS, "duration", "30s")


def parse_bytes(text: str) -> int:
    """Parse a size; returns bytes. Units: B, kB, MB, GB, TB and KiB, MiB, GiB, TiB. Raises ValueError, which says what was found.

    >>> parse_bytes("64MiB")
    67108864
    """
    return int(_parse(text, _BYTES, "size", "64MiB"))


def _parse(text: str, units: dict[str, float] | dict[str, int], what: str, example: str) -> float:
    form = _FORM.match(text.strip())
    if form is None:
        raise ValueError(f'"{text}" is not a valid {what}; write a number and its unit, such as {example}')
    number, unit = form.groups()
    if unit not in units:
        found = f'unknown unit "{unit}"' if unit else "no unit"
        raise ValueError(f'"{text}" has {found}; units are {", ".join(units)}, as in {example}')
    return float(number) * units[unit]


def show_duration(seconds: float) -> str:
    """A duration as a short text for people: `0.4s`, `12s`, `3m20s`, `2h05m`, `4d3h`.

    >>> show_duration(200), show_duration(0.4), show_duration(7500)
    ('3m20s', '0.4s', '2h05m')
    """
    if seconds < 10:
        return f"{seconds:.1f}s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    if whole < 86400:
        return f"{whole // 3600}h{whole % 3600 // 60:02d}m"
    return f"{whole // 86400}d{whole % 86400 // 3600}h"


def show_bytes(count: float) -> str:
    """A number of bytes as a short text for people, in powers of 1024.

    >>> show_bytes(146800640)
    '140.0 MiB'
    """
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"
