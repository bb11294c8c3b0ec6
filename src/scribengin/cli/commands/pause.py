"""`scribengin pause NAME...`."""

from __future__ import annotations

from scribengin.cli.verbs import verb

command = verb("paused", ("paused",), "Let flows make no new Batch; their processes stay, so that resume is quick.")
