"""`python -m scribengin.agent`: an agent without the other commands, and without what they import."""

from __future__ import annotations

import sys

from scribengin.agent.process import main

if __name__ == "__main__":
    sys.exit(main())
