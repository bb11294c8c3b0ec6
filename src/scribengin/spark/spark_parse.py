"""`parse: spark`: lines read by Spark's `from_json` or `from_csv`, with their deviations from the parse contract.

They read the first object of `{…}{…}`, accept trailing text, single quotes, any value for a STRING and a number for a TIMESTAMP, and do not
check NOT NULL; docs/bad-records.md lists them. A line that they cannot read at all becomes a dead letter here too, but its message does not
name the field.

CSV is read by position, one record per line: for a header it would have to be removed from each file, and its names brought into the
schema's order, which is what `parse: strict` does.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from scribengin.core.errors import StepError
from scribengin.core.types import Field, Schema, Type, in_backticks
from scribengin.spark.native import DEAD_TYPE, NativeFrame, literal
from scribengin.spark.program import AT, DEAD, SPARK_PARSE

if TYPE_CHECKING:
    from scribengin.spec.model import Source

TEXT = Schema((Field("value", Type("STRING")),))
_CORRUPT = "_sg_corrupt"


def parsed(lines: NativeFrame, source: Source, schema: Schema) -> NativeFrame:
    """The source's columns, parsed from the lines' text; blank lines are filtered. Raises StepError for CSV with a header line."""
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    if source.options.get("format") == "csv":
        if source.options.get("header", True):
            raise StepError(
                f'source "{source.id}": `parse: spark` reads CSV line by line and cannot distinguish a header from a record',
                remedy="set header: false, or remove `parse`",
                node=source.id,
            )
        options |= {"sep": source.options.get("delimiter", ","), "nullValue": source.options.get("null", "")}
        function = "from_csv"
    else:
        function = "from_json"
    asked = Schema((*(Field(f.name, f.type) for f in schema.fields), Field(_CORRUPT, Type("STRING"))))
    given = ", ".join(f"{literal(name)}, {literal(value)}" for name, value in options.items())
    df = lines.df.where("trim(value) <> ''").selectExpr(
        f"{function}(value, {literal(asked.ddl())}, map({given})) AS _sg_record", "value AS _sg_line", AT
    )
    failed = f"named_struct('step', {literal(source.id)}, 'name', {literal(SPARK_PARSE)}, 'payload', _sg_line)"
    columns = [f"_sg_record.{in_backticks(field.name)} AS {in_backticks(field.name)}" for field in schema.fields]
    dead = f"CASE WHEN _sg_record IS NULL OR _sg_record.{_CORRUPT} IS NOT NULL THEN {failed} END"
    df = df.selectExpr(*columns, AT, f"CAST({dead} AS {DEAD_TYPE}) AS {DEAD}")
    return replace(lines, df=df, dead=True)
