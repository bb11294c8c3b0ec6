"""`scribengin drain NAME...`."""

from __future__ import annotations

from scribengin.cli.flow_verbs import verb

command = verb(
    "drained",
    ("stopped",),
    "Process the data available now through all tiers, then stop.\n\n\b\nExample:\n  scribengin drain orders --wait",
)
