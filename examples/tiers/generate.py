"""Make the events that the flows of this folder read: JSON lines of a web shop's two front ends, the same each time."""

import argparse
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

PAGES = ("home", "search", "item", "basket", "pay")


def event(number: int, where: str) -> dict:
    at = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=number)
    return {
        "id": number,
        "user": f"{where}_{number * 7919 % 97:02d}",
        "page": PAGES[number * 31 % len(PAGES)],
        "amount": number * 53 % 400,
        "at": at.isoformat().replace("+00:00", "Z"),
    }


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--size", type=int, default=5_000, help="how many of each front end")
    options.add_argument("--folder", type=Path, default=Path(__file__).parent)
    asked = options.parse_args()
    for where, first in (("web", 0), ("app", 1_000_000)):
        folder = asked.folder / "data" / where
        folder.mkdir(parents=True, exist_ok=True)
        for part in range(4):
            numbers = range(first + part * asked.size // 4, first + (part + 1) * asked.size // 4)
            lines = [json.dumps(event(number, where)) for number in numbers]
            (folder / f"{part}.jsonl").write_text("".join(f"{line}\n" for line in lines))
    print(f"{2 * asked.size:,} events in {asked.folder / 'data'}")


if __name__ == "__main__":
    main()
