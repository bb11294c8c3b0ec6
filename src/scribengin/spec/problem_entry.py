"""One code of the catalog of problems, and the flow around its example."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from scribengin.core.problems import Severity


# The beginning of examples that are whole flow files.


ORDERS = """version: 1
name: shop
sources:
  orders:
    {type: files, path: data, format: json, schema: "id BIGINT, user STRING, amount DOUBLE, ts TIMESTAMP", watermark: ts 10m}
"""
"""the beginning of a flow, up to the first source; the lines of further sources may follow"""

Slot = Literal["file", "top", "source", "step", "sink"]

_BASE = {
    "top": "",
    "source": '  orders: {type: files, path: data, format: json, schema: "id BIGINT, amount DOUBLE, ts TIMESTAMP", watermark: ts 10m}\n',
    "step": "  big: {from: orders, filter: amount > 100}\n",
    "sink": "  kept: {from: big, type: files, path: out, format: json}\n",
}


def met(code: str, title: str, meaning: str, remedy: str, shown_by: str = "") -> ProblemEntry:
    """A code that the text of a flow alone cannot cause: it needs a state, a server, a machine or a command line."""
    return ProblemEntry(code, title, meaning, remedy, "", shown_by=shown_by)


@dataclass(frozen=True, slots=True)
class ProblemEntry:
    """One code. `example` is YAML text that causes it, at `slot` of a small flow over `orders` (`example_flow`); empty if the code needs a
    state, a server or a machine.

    `fix` is (a part of the example, its correct text); `shown_by` is a test that causes the code.
    """

    code: str
    title: str
    meaning: str
    remedy: str
    example: str
    slot: Slot = "step"
    severity: Severity = "error"
    fix: tuple[str, str] | None = None
    shown_by: str = ""

    @property
    def right(self) -> str:
        """The example without the mistake; empty if no fix is declared."""
        return self.example.replace(*self.fix, 1) if self.fix is not None else ""

    def fragment(self, text: str) -> str:
        """An example as shown in the docs: below the key of its section."""
        section = {"source": "sources", "step": "steps", "sink": "sinks"}.get(self.slot, "")
        lines = text.rstrip("\n").replace("\x07", "␇").splitlines()
        return "\n".join([f"{section}:", *(f"  {line}" if line else line for line in lines)] if section else lines)


def example_flow(entry: ProblemEntry, example: str | None = None) -> str:
    """The whole flow file of an entry's example: a correct flow in which the example replaces `slot`."""
    example = entry.example if example is None else example
    if entry.slot == "file":
        return example
    parts = dict(_BASE)
    parts[entry.slot] = "".join(f"{'' if entry.slot == 'top' else '  '}{line}\n" for line in example.splitlines())
    if entry.slot == "step" and not example.lstrip().startswith("big:"):
        parts["step"] += _BASE["step"]
        parts["sink"] += f"  others: {{from: {example.lstrip().partition(':')[0]}, type: console}}\n"
    if entry.slot == "sink":
        parts["sink"] += "  others: {from: big, type: console}\n"
    if entry.slot == "source" and not example.lstrip().startswith("orders:"):
        parts["source"] += _BASE["source"]
    head = "version: 1\nname: shop\n"
    return f"{head}{parts['top']}sources:\n{parts['source']}steps:\n{parts['step']}sinks:\n{parts['sink']}"
