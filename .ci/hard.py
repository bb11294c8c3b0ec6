"""The tests beside a busy loop on each core, in another random order each round: what fails here depends on the machine or on an order."""

import argparse
import os
import subprocess
import sys

_LOOP = "import os\nparent = os.getppid()\nwhile os.getppid() == parent:\n    sum(range(10**6))"


def main() -> int:
    """0 where no round failed, else the first failing round's status."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--first", type=int, default=1, help="the first round's order")
    options.add_argument("rest", nargs="*", help="arguments of pytest, after --")
    asked = options.parse_args()
    for seed in range(asked.first, asked.first + asked.rounds):
        loops = [subprocess.Popen([sys.executable, "-c", _LOOP]) for _ in range(os.cpu_count() or 1)]
        try:
            print(f"round {seed - asked.first + 1} of {asked.rounds}: --shuffle {seed}", flush=True)
            ended = subprocess.run([sys.executable, "-m", "pytest", *asked.rest, "--shuffle", str(seed)], check=False)
        finally:
            for loop in loops:
                loop.kill()
                loop.wait()
        if ended.returncode:
            return ended.returncode
    return 0


if __name__ == "__main__":
    sys.exit(main())
