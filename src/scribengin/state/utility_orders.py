"""The order and cost of utilities from a Batch's decision, as JSON and as text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


def orders_as_json(orders: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """For each step: `order`, in which the next Batch begins; `free`, whether the order is chosen at run time; and for each utility the
    nanoseconds a record `ns` and, if the order is free, the share `keeps` of all records that it keeps. Null if not known yet. `orders` is
    that of a `Decision`."""
    return {
        step: {
            "order": list(learned.get("order", learned["names"])),
            "free": "order" in learned,
            "utilities": {
                name: {"ns": ns} | ({"keeps": keeps} if "order" in learned else {})
                for name, ns, keeps in zip(learned["names"], learned["ns"], learned.get("keeps", learned["names"]), strict=True)
            },
        }
        for step, learned in orders.items()
    }


def order_texts(orders: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """A line for each step.

    >>> order_texts({"u": {"names": ["f", "g"], "ns": [812.0, 56.4], "order": ["g", "f"], "keeps": [0.9, 0.1804]}})
    ['u asks g (56 ns, keeps 18%), then f (812 ns, keeps 90%)']
    >>> order_texts({"v": {"names": ["f", "g"], "ns": [1530.0, None]}})
    ['v runs f (1.5 µs), then g']
    """
    return order_lines(orders_as_json(orders))


def order_lines(told_of: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The lines of `order_texts`, from the result of `orders_as_json`."""
    lines = []
    for step, told in told_of.items():
        each = [_text(name, told["utilities"][name]) for name in told["order"]]
        lines.append(f"{step} {'asks' if told['free'] else 'runs'} {', then '.join(each)}")
    return lines


def _text(name: str, figures: Mapping[str, Any]) -> str:
    ns, keeps = figures["ns"], figures.get("keeps")
    parts = [] if ns is None else [f"{ns:.0f} ns" if ns < 1000 else f"{ns / 1000:.1f} µs" if ns < 1e6 else f"{ns / 1e6:.1f} ms"]
    parts += [] if keeps is None else [f"keeps {keeps:.0%}"]
    return f"{name} ({', '.join(parts)})" if parts else name
