"""One code of the catalog of problems, and the flow around its example."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from scribengin.core.problems import Severity

Slot = Literal["file", "top", "source", "step", "sink"]

_BASE = {
    "top": "",
    "source": '  orders: {type: files, path: data, format: json, schema: "id BIGINT, amount DOUBLE, ts TIMESTAMP", watermark: ts 10m}\n',
    "step": "  big: {from: orders, filter: amount > 100}\n",
    "sink": "  kept: {from: big, type: files, path: out, format: json}\n",
}


@dataclass(frozen=True, slots=True)
class Entry:
    """One code. `example` is YAML text that makes it, at `slot` of a small flow over `orders` (`example_flow`)."""

    code: str
    title: str
    meaning: str
    remedy: str
    example: str
    slot: Slot = "step"
    severity: Severity = "error"


def example_flow(entry: Entry) -> str:
    """The whole flow file of an entry's example: the example takes the place of `slot` in a flow that is right otherwise."""
    if entry.slot == "file":
        return entry.example
    parts = dict(_BASE)
    parts[entry.slot] = "".join(f"{'' if entry.slot == 'top' else '  '}{line}\n" for line in entry.example.splitlines())
    if entry.slot == "step" and not entry.example.lstrip().startswith("big:"):
        parts["step"] += _BASE["step"]
    if entry.slot == "source" and not entry.example.lstrip().startswith("orders:"):
        parts["source"] += _BASE["source"]
    head = "version: 1\nname: shop\n"
    return f"{head}{parts['top']}sources:\n{parts['source']}steps:\n{parts['step']}sinks:\n{parts['sink']}"
