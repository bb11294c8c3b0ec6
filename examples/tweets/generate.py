"""Make the tweets that flow.yaml reads: python generate.py [--size 1000000] [--seed N] [--folder data]."""

import argparse
from pathlib import Path

from harness.tweets import SEED, write_tweets


def main() -> None:
    """Write the files and say what is in them."""
    options = argparse.ArgumentParser(description="Make tweets: JSON lines, the same for the same seed, in time order.")
    options.add_argument("--size", type=int, default=1_000_000, help="how many")
    options.add_argument("--seed", type=int, default=SEED)
    options.add_argument("--folder", type=Path, default=Path(__file__).parent / "data")
    asked = options.parse_args()
    written = write_tweets(asked.folder, rows=asked.size, seed=asked.seed)
    print(
        f"{written.rows:,} tweets, {written.bytes / 1e6:.0f} MB in {asked.folder}: "
        f"{len(written.kept_ids):,} to keep, {written.malformed} malformed, {len(written.undated_ids)} popular ones without a time"
    )


if __name__ == "__main__":
    main()
