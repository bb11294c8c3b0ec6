"""`scribengin node map FLOW.TIER NODE`."""

from __future__ import annotations

from scribengin.cli.binding import binding

command = binding(
    "Bind a tier to a node. If it runs elsewhere, it stops there after the current Batches and continues on that "
    "node. A stopped tier stays stopped.\n\n\b\nExample:\n  scribengin node map orders.core host2",
    start=False,
)
