"""`scribengin stop NAME...`."""

from __future__ import annotations

from scribengin.cli.verbs import verb

command = verb("stopped", ("stopped",), "End flows after the Batches under way; what waits between tiers waits on.")
