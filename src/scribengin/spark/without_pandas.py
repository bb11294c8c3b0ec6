"""Does what PySpark does by importing pandas without that import, which takes 0.4 s of a core and 40 MB at every start of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scribengin.core.types import in_backticks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame


def map_in_arrow(df: DataFrame, run: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]], columns: str) -> DataFrame:
    """`df.mapInArrow(run, columns)`, which requires pandas but does not use it."""
    from pyspark.sql import DataFrame
    from pyspark.sql.udf import UserDefinedFunction
    from pyspark.util import PythonEvalType

    function = UserDefinedFunction(run, returnType=columns, evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
    called: Any = function(*(df[in_backticks(column)] for column in df.columns))
    return DataFrame(df._jdf.mapInArrow(called._jc, False, None), df.sparkSession)


class _OnlyOfNumpy:
    """Wraps PySpark's converter for Py4J, so that it is called for values of NumPy's classes only, which are all that it converts. For
    every value that is not a plain one, the converter otherwise asks a module of PySpark's own tests, which imports pandas, whether NumPy
    is installed."""

    def __init__(self, converter: Any) -> None:
        self._converter = converter

    def can_convert(self, value: object) -> bool:
        """Called by Py4J: True if this converter applies."""
        return any(each.__module__ == "numpy" for each in type(value).__mro__) and self._converter.can_convert(value)

    def convert(self, value: object, client: Any) -> Any:
        """Called by Py4J: convert the value."""
        return self._converter.convert(value, client)


def limit_numpy_converters() -> None:
    """Wrap PySpark's converters in this process. Idempotent."""
    from py4j.protocol import INPUT_CONVERTER
    from pyspark.sql.types import NumpyArrayConverter, NumpyScalarConverter

    for place, each in enumerate(INPUT_CONVERTER):
        if isinstance(each, NumpyArrayConverter | NumpyScalarConverter):
            INPUT_CONVERTER[place] = _OnlyOfNumpy(each)
