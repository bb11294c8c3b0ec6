"""Lines of a worker in its own log, that is its output."""

from __future__ import annotations

import sys
import time


def tell(text: str) -> None:
    """Print a line, with the time before it."""
    print(f"{time.strftime('%Y-%m-%dT%H:%M:%S%z')} {text}", file=sys.stderr, flush=True)
