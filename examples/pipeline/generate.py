"""Make the events: those of the application in the folder app/, the older ones in HDFS below /archive. The same each time."""

import argparse
import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

from hdfs_native import Client, WriteOptions

PAGES = ("home", "search", "item", "basket", "pay")


def event(number: int) -> dict:
    at = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=number)
    return {
        "id": number,
        "user": f"u{number * 7919 % 97:02d}",
        "page": PAGES[number * 31 % len(PAGES)],
        "amount": number * 53 % 400,
        "at": at.isoformat().replace("+00:00", "Z"),
    }


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--size", type=int, default=1_000, help="how many of each")
    size = options.parse_args().size
    old, new = ("".join(json.dumps(event(number)) + "\n" for number in range(first, first + size)) for first in (0, size))
    with Client(os.environ["NAMENODE"]).create("/archive/old.jsonl", WriteOptions(overwrite=True)) as file:
        file.write(old.encode())
    Path("app").mkdir(exist_ok=True)
    Path("app/new.jsonl").write_text(new)
    print(f"{size:,} events in app, {size:,} in {os.environ['NAMENODE']}/archive")


if __name__ == "__main__":
    main()
