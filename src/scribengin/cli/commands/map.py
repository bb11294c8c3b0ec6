"""`scribengin map FLOW.TIER NODE`."""

from __future__ import annotations

from scribengin.cli.binding import binding

command = binding(
    "Have a tier run on that node, and on no other. One that runs elsewhere ends there after the Batches under way, and goes on here; "
    "one that is not wanted running stays so.",
    start=False,
)
