"""`scribengin node start-tier FLOW.TIER NODE`."""

from __future__ import annotations

from scribengin.cli.binding import binding

command = binding(
    "Start a tier on a node: bind it there and set the desired state of its flow to running, in one step."
    "\n\n\b\nExample:\n  scribengin node start-tier orders.core host2",
    start=True,
)
