"""`scribengin pause NAME...`."""

from __future__ import annotations

from scribengin.cli.flow_verbs import verb

command = verb(
    "paused", ("paused",), "Pause flows. Workers stay up; no new Batch starts.\n\n\b\nExample:\n  scribengin pause orders --wait"
)
