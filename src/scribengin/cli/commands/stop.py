"""`scribengin stop NAME...`."""

from __future__ import annotations

from scribengin.cli.flow_verbs import verb

command = verb(
    "stopped",
    ("stopped",),
    "Stop flows after the current Batches. Data between tiers stays there.\n\n\b\nExample:\n  scribengin stop orders --wait",
)
