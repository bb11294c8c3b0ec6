"""Outcomes as JUnit XML, which test reports of CI servers read."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.etree import ElementTree

from scribengin.flow_tests.report import outcome_text

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from scribengin.flow_tests.contract import FlowTestOutcome

_FORBIDDEN = dict.fromkeys((*range(9), 11, 12, *range(14, 32), 65534, 65535), "�")


def write_junit(file: Path, outcomes: Sequence[FlowTestOutcome]) -> None:
    """One `testsuite` a flow. Raises OSError."""
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
    """Without the characters that XML cannot hold."""
    return text.translate(_FORBIDDEN)
