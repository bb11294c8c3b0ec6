"""`scribengin drain NAME...`."""

from __future__ import annotations

from scribengin.cli.verbs import verb

command = verb("drained", ("stopped",), "Let what is there now go through all tiers, then end the processes.")
