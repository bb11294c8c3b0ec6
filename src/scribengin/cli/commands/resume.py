"""`scribengin resume NAME...`."""

from __future__ import annotations

from scribengin.cli.verbs import verb

command = verb("running", ("running",), "Let flows run again, or try again what waits for a person.")
