"""What a worker says in its own log, which is what it prints."""

from __future__ import annotations

import sys
import time


def tell(text: str) -> None:
    """A line, with the moment before it."""
    print(f"{time.strftime('%Y-%m-%dT%H:%M:%S%z')} {text}", file=sys.stderr, flush=True)
