"""Values of columns as JSON and back, exactly: a value without a JSON form is `{"$": kind, "v": text}`."""

from __future__ import annotations

import base64
import datetime as dt
from collections import deque
from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from math import isfinite
from typing import Any

_WIDE = 2**63


def as_cell(value: Any) -> Any:
    """One value as JSON."""
    match value:
        case None | bool() | str():
            return value
        case int():
            return value if -_WIDE <= value < _WIDE else {"$": "int", "v": str(value)}
        case float():
            return value if isfinite(value) else {"$": "float", "v": repr(value)}
        case Decimal():
            return {"$": "decimal", "v": str(value)}
        case dt.datetime():
            return {"$": "time", "v": value.isoformat()}
        case dt.date():
            return {"$": "date", "v": value.isoformat()}
        case bytes():
            return {"$": "bytes", "v": base64.b64encode(value).decode()}
    raise TypeError(f"a column cannot hold {type(value).__name__}")


def of_cell(cell: Any) -> Any:
    """The value from the form that `as_cell` wrote."""
    if not isinstance(cell, dict):
        return cell
    text: str = cell["v"]
    match cell["$"]:
        case "int":
            return int(text)
        case "float":
            return float(text)
        case "decimal":
            return Decimal(text)
        case "time":
            return dt.datetime.fromisoformat(text)
        case "date":
            return dt.date.fromisoformat(text)
    return base64.b64decode(text)


def shown(value: Any) -> Any:
    """A value for people and for JSON output. Raises TypeError for a value that cannot be shown."""
    match value:
        case dt.datetime():  # one without a time zone is shown unchanged: its zone is unknown
            return (value if value.tzinfo is None else value.astimezone(dt.UTC)).isoformat().replace("+00:00", "Z")
        case dt.date() | dt.time() | dt.timedelta() | Decimal() | Fraction():
            return str(value)
        case list() | tuple() | deque():
            return [shown(each) for each in value]
        case set() | frozenset():
            return sorted((shown(each) for each in value), key=repr)
        case Mapping():
            return {str(shown(name)): shown(each) for name, each in value.items()}
        case None | bool() | str():
            return value
        case bytes():
            return base64.b64encode(value).decode()
        case float() if not isfinite(value):
            return repr(value)
        case int() if not -_WIDE <= value < _WIDE:
            return str(value)
        case int() | float():
            return value
    raise TypeError(f"{type(value).__name__} cannot be shown")
