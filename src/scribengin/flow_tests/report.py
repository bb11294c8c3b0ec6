"""The differences of a test as text: differing rows side by side, and the step where they began to differ."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from scribengin.formats.written_values import written_value
from scribengin.spec.yaml_text import write_scalar

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from scribengin.flow_tests.contract import Difference, FlowTestOutcome, Row
    from scribengin.state.contract import Counts


MOST_PAIRS = 20
_WIDE = 48


def outcome_text(outcome: FlowTestOutcome) -> str:
    """The whole outcome as text, without colours."""
    lines = [str(problem) for problem in outcome.problems]
    for difference in outcome.differences:
        lines += [f"{difference.place}: {difference.where}: {difference.what}"]
        table = [["", *difference.columns], *(cells for cells, _ in table_rows(difference))]
        widths = [max(len(row[column]) for row in table) for column in range(len(table[0]))] if len(table) > 1 else []
        lines += ["  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table if widths]
        lines += [f"  {sentence}" for sentence in difference.parted]
    if outcome.result is not None and outcome.result.ledger and not outcome.passed:
        lines.append(counts_text(outcome.result.ledger))
    return "\n".join(lines)


def table_rows(difference: Difference) -> Iterator[tuple[list[str], tuple[str, ...]]]:
    """Yields (cells with `expected` or `got` before them, the columns that differ), for the first pairs."""
    for pair in difference.pairs[:MOST_PAIRS]:
        if pair.expected is not None:
            yield _cells("expected", pair.expected, difference.columns), pair.differ
        if pair.got is not None:
            yield _cells("got", pair.got, difference.columns), pair.differ
    if len(difference.pairs) > MOST_PAIRS:
        yield [f"… {len(difference.pairs) - MOST_PAIRS} more", *("" for _ in difference.columns)], ()


def counts_text(ledger: Mapping[str, Counts]) -> str:
    """The counts as a text such as `tweets: 3 in, 1 dead, 2 out; known+hot: …`."""
    return "; ".join(f"{node}: {_counts(counts)}" for node, counts in ledger.items())


def cell_text(value: Any) -> str:
    """A value as written in a test, on one line, cut if it is long."""
    written = written_value(value)
    text = flow_text(written)
    return text if len(text) <= _WIDE else text[: _WIDE - 1] + "…"


def _cells(label: str, row: Row, columns: tuple[str, ...]) -> list[str]:
    return [label, *(cell_text(row[name]) if name in row else "" for name in columns)]


def flow_text(value: Any) -> str:
    """Plain data as YAML on one line."""
    match value:
        case dict():
            return "{" + ", ".join(f"{write_scalar(key)}: {flow_text(item)}" for key, item in value.items()) + "}"
        case list():
            return "[" + ", ".join(map(flow_text, value)) + "]"
    return write_scalar(value)


def _counts(counts: Counts) -> str:
    cells = counts.as_json()
    shown = [name for name in ("in", "made", "filtered", "dead", "late", "held", "out") if cells.get(name) or name in ("in", "out")]
    return ", ".join(f"{cells[name]} {name}" for name in shown)


# Writes results as JUnit XML, which CI servers read.


_FORBIDDEN = dict.fromkeys((*range(9), 11, 12, *range(14, 32), 65534, 65535), "�")


def write_junit(file: Path, outcomes: Sequence[FlowTestOutcome]) -> None:
    """Write one `testsuite` for each flow. Raises OSError."""
    root = ElementTree.Element("testsuites")
    for flow in dict.fromkeys(outcome.flow for outcome in outcomes):
        mine = [outcome for outcome in outcomes if outcome.flow == flow]
        failures = sum(bool(outcome.differences) and not outcome.problems for outcome in mine)
        suite = ElementTree.SubElement(
            root,
            "testsuite",
            name=flow,
            tests=str(len(mine)),
            failures=str(failures),
            errors=str(sum(bool(outcome.problems) for outcome in mine)),
            time=f"{sum(outcome.seconds for outcome in mine):.3f}",
        )
        for outcome in mine:
            place = outcome.place
            case = ElementTree.SubElement(
                suite,
                "testcase",
                classname=flow,
                name=_clean(outcome.name),
                time=f"{outcome.seconds:.3f}",
                file=place.file,
                line=str(place.line),
            )
            if not outcome.passed:
                told = "; ".join(
                    [*(f"{each.where}: {each.what}" for each in outcome.differences), *(each.message for each in outcome.problems)]
                )
                fault = ElementTree.SubElement(case, "error" if outcome.problems else "failure", message=_clean(told))
                fault.text = _clean(outcome_text(outcome))
    tree = ElementTree.ElementTree(root)
    ElementTree.indent(tree)
    tree.write(file, encoding="utf-8", xml_declaration=True)


def _clean(text: str) -> str:
    """Remove characters that are not allowed in XML."""
    return text.translate(_FORBIDDEN)
