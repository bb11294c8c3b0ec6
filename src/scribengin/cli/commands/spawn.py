"""`scribengin spawn FLOW.TIER NODE`."""

from __future__ import annotations

from scribengin.cli.binding import binding

command = binding("Start a tier on that node: it is mapped there, and its flow is wanted running, in one step.", start=True)
