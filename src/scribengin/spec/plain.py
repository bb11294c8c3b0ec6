"""Python values as the plain data of a flow file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import PurePath
from typing import Any

from scribengin.core.secret import Secret
from scribengin.core.types import Schema
from scribengin.spec.units_text import show_duration_exactly


def plain(value: Any) -> Any:
    """Texts, numbers, booleans, lists and mappings; a path, a timedelta, a Schema or a Secret becomes its text in a flow file.

    >>> from datetime import timedelta
    >>> plain({"within": timedelta(minutes=10), "key": ("id",)})
    {'within': '10m', 'key': ['id']}
    """
    match value:
        case None | bool() | int() | float() | str():
            return value
        case timedelta():
            return show_duration_exactly(value.total_seconds())
        case PurePath() | Schema():
            return str(value)
        case Secret():
            return value.reference
        case Mapping():
            return {str(key): plain(item) for key, item in value.items()}
        case Sequence():
            return [plain(item) for item in value]
        case _:
            raise TypeError(f"a flow cannot hold {value!r}, a {type(value).__name__}")
