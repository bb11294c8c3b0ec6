"""The Python form of a summary: a user class adds up records, and its instances can be merged.

Only the attributes of the instance, of built-in Python types, are sent between tasks and the driver. So a state can be read even if the
module of the class has changed, and reading it runs no user code.
"""

from __future__ import annotations

import base64
import io
import pickle
from typing import TYPE_CHECKING, Any

from scribengin.connectors.summary.table import without_far
from scribengin.core.errors import StepError
from scribengin.formats.contract import Bad
from scribengin.formats.rows import batch_to_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pyarrow as pa

_PLAIN = {
    "builtins": {"set", "frozenset", "bytearray", "complex", "range", "int", "float", "str", "list", "dict", "tuple"},
    "collections": {"Counter", "defaultdict", "deque", "OrderedDict"},
    "datetime": {"date", "datetime", "time", "timedelta", "timezone"},
    "decimal": {"Decimal"},
    "fractions": {"Fraction"},
}


class Reduced:
    """A partial result: the attributes of an instance of the user class."""

    left_out = False
    rows_left_out = 0
    size = 0

    def __init__(self, reference: str, make: Callable[[], Any], keep: int, rows: int = 0) -> None:
        self.rows = rows
        self._reference = reference
        self._make = make
        self._keep = keep
        self._instance = self._opened()

    def add(self, batch: pa.RecordBatch) -> list[Bad]:
        """Pass each row to the instance; returns the rows for which it raises."""
        given = batch.num_rows
        batch, kept, bad = without_far(batch, batch.schema.names)
        for index, row in zip(kept, batch_to_rows(batch), strict=True):
            try:
                self._instance.add(row)
            except Exception as error:
                bad.append(Bad(index, "raised", f"{self._reference}: {type(error).__name__}: {error}"))
        self.rows += given - len(bad)
        return bad

    def goes_with(self, part: Mapping[str, Any]) -> bool:  # noqa: ARG002 (the form's)
        """Always True: no group is ever left out, and the class defines its attributes."""
        return True

    def merge(self, other: Reduced) -> None:
        """Merge another partial result. Raises StepError if the user code raises."""
        self.rows += other.rows
        try:
            self._instance.merge(other._instance)
        except Exception as error:
            raise self._fault("merge", error) from error

    def result(self) -> list[dict[str, Any]]:
        """The rows of the instance's result, at most `keep`; a single mapping is one row. Raises StepError."""
        try:
            found = self._instance.result()
            rows = [dict(found)] if hasattr(found, "keys") else [dict(row) for row in found]
        except Exception as error:
            raise self._fault("result", error) from error
        self.size, self.left_out = len(rows), len(rows) > self._keep
        return rows[: self._keep]

    def outputs(self, rows: list[dict[str, Any]]) -> list[str]:
        """The names of all columns, in the order of their first occurrence."""
        return list(dict.fromkeys(name for row in rows for name in row))

    def as_json(self, most_bytes: int | None = None) -> dict[str, Any]:
        """The partial result for a write receipt or a snapshot. Raises StepError for attributes of other types, or if they are larger than
        `most_bytes`."""
        try:
            data = pickle.dumps(vars(self._instance), protocol=5)
            _Plain(io.BytesIO(data)).load()
        except Exception as error:  # pickle raises any error, and so do the methods of the attributes
            raise StepError(
                f"{self._reference}: its attributes cannot be stored: {error}",
                remedy="store only numbers, texts, dates, lists, dicts, sets and Counters in them",
            ) from None
        if most_bytes is not None and len(data) > most_bytes:
            raise StepError(
                f"{self._reference}: its attributes have {len(data):,} bytes; the limit of a partial result is {most_bytes:,}",
                remedy="store less in them: counts, not records",
            )
        return {"form": form_of(self._reference), "rows": self.rows, "state": base64.b64encode(data).decode()}

    @staticmethod
    def from_json(data: Mapping[str, Any], reference: str, make: Callable[[], Any], keep: int) -> Reduced:
        """The partial result from the JSON that `as_json` returned. Raises StepError for attributes that the current class does not accept.

        Args:
            data: The JSON object.
            reference: The class, as `module:name`.
            make: Creates an instance.
            keep: The maximum number of rows of the result.
        """
        part = Reduced(reference, make, keep, data["rows"])
        try:
            vars(part._instance).update(_Plain(io.BytesIO(base64.b64decode(data["state"]))).load())
        except Exception as error:  # pickle raises any error
            raise StepError(
                f"{reference}: a stored partial result cannot be read: {type(error).__name__}: {error}",
                remedy="restore the old class, or give the changed class another name: its summary then starts from the beginning",
            ) from error
        return part

    def _opened(self) -> Any:
        try:
            return self._make()
        except Exception as error:
            raise self._fault("__init__", error) from error

    def _fault(self, method: str, error: Exception) -> StepError:
        return StepError(f"{self._reference}: {method} raised {type(error).__name__}: {error}", remedy="correct it, then run again")


def form_of(reference: str) -> str:
    """The form of a class: partial results with the same form can be merged."""
    return f"python {reference}"


class _Plain(pickle.Unpickler):
    """An unpickler that creates built-in Python types only, and calls nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        if name in _PLAIN.get(module, ()):
            return super().find_class(module, name)
        raise TypeError(f"{module}.{name} is not a built-in Python type that can be stored")
