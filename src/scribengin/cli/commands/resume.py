"""`scribengin resume NAME...`."""

from __future__ import annotations

from scribengin.cli.flow_verbs import verb

command = verb(
    "running", ("running",), "Resume paused or stopped flows, or retry failed ones.\n\n\b\nExample:\n  scribengin resume orders --wait"
)
