"""Run a command several times beside a busy loop on each core; stops at the first that fails: busy.py --times 5 -- make test."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys

_BUSY = "import os\nparent = os.getppid()\nwhile os.getppid() == parent: sum(range(100_000))"
"""ends when the process that started it is gone"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=5, help="how often (5)")
    parser.add_argument("command", nargs="+")
    asked = parser.parse_args()
    loops = [subprocess.Popen([sys.executable, "-S", "-c", _BUSY]) for _ in range(os.cpu_count() or 1)]
    try:
        for time in range(1, asked.times + 1):
            print(f"run {time} of {asked.times}, beside {len(loops)} busy loops", flush=True)
            ended = subprocess.run(asked.command, check=False)
            if ended.returncode:
                return ended.returncode
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
