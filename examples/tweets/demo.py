"""`make demo`: make tweets, run flow.yaml on them, audit it, and look at what came out. Everything it does is a command you can type.

Stopped with Ctrl-C and called again, it goes on where it stopped; after a finished run it starts anew.
"""

import argparse
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
from rich.console import Console
from rich.table import Table

from harness.tweets import SEED, write_tweets

HERE = Path(__file__).parent
FLOW = HERE / "flow.yaml"
NOTES = HERE / ".demo.json"
console = Console(highlight=False)


def main() -> int:
    """The exit status of the first command that fails, else 0."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--size", type=int, default=1_000_000, help="how many tweets")
    size = options.parse_args().size
    notes = json.loads(NOTES.read_text()) if NOTES.exists() else {}
    if notes.get("size") != size:
        forget()
        notes = make_tweets(size)
    elif notes["finished"]:
        forget()

    flow = shown(FLOW)
    status = scribengin("run", flow, "--once")
    if status:
        return status
    if interrupted:
        console.print("\nStopped. [bold]make demo[/] goes on from here.")
        return 0
    NOTES.write_text(json.dumps(notes | {"finished": True}))
    status = scribengin("audit", flow)
    if status:
        return status
    show_outputs(notes)
    return scribengin("dead-letter", "list", flow) or scribengin("dead-letter", "show", flow, "--limit", "2")


def make_tweets(size: int) -> dict[str, Any]:
    """Write the data folder anew; what is known of it goes into the notes."""
    console.print(f"Making {size:,} tweets in {shown(HERE / 'data')} …", style="dim")
    for old in (HERE / "data").glob("tweets-*.jsonl"):
        old.unlink()
    written = write_tweets(HERE / "data", rows=size, seed=SEED)
    console.print(f"{written.rows:,} tweets, {written.bytes / 1e6:.0f} MB, {written.malformed} of them malformed", style="dim")
    notes = {"size": size, "kept": len(written.kept_ids), "finished": False}
    NOTES.write_text(json.dumps(notes))
    return notes


def forget() -> None:
    """Let the flow start anew."""
    if (HERE / ".scribengin").exists() or (HERE / "out").exists():
        scribengin("reset", shown(FLOW), "--outputs", "--yes")


def show_outputs(notes: dict[str, Any]) -> None:
    """A look at what was written, with a reader that knows nothing of Scribengin."""
    kept = f"read_parquet('{HERE}/out/kept/*.parquet')"
    (rows, distinct) = duckdb.sql(f"SELECT count(*), count(DISTINCT id) FROM {kept}").fetchall()[0]
    verdict = "[green]exactly those[/]" if rows == distinct == notes["kept"] else "[red]NOT those[/]"
    console.print(
        f"\n[bold]out/kept[/]  {rows:,} tweets, {distinct:,} different ids; the generator made {notes['kept']:,} to keep: {verdict}"
    )
    console.print(table(f"SELECT id, user, followers, retweets, text FROM {kept} ORDER BY retweets DESC LIMIT 5"))
    counts = f"read_json('{HERE}/out/counts/*.jsonl')"
    console.print("\n[bold]out/counts[/]  the last full hours")
    console.print(table(f"SELECT strftime(hour, '%H:%M') AS hour, hashtag, n FROM {counts} ORDER BY hour DESC, n DESC LIMIT 6"))


def table(query: str) -> Table:
    """The rows of a query."""
    answer = duckdb.sql(query)
    drawn = Table(box=None, header_style="dim", padding=(0, 2, 0, 0), pad_edge=False)
    rows = [[f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row] for row in answer.fetchall()]
    for index, (name, kind) in enumerate(zip(answer.columns, answer.types, strict=True)):
        last = index == len(answer.columns) - 1
        width = 0 if last else max(len(name), *(len(row[index]) for row in rows), 0)
        drawn.add_column(name, justify="left" if "VARCHAR" in str(kind) else "right", no_wrap=True, overflow="ellipsis", min_width=width)
    for row in rows:
        drawn.add_row(*row)
    return drawn


def scribengin(*arguments: str) -> int:
    """Run a command as a person would, saying so. It gets the terminal's Ctrl-C itself; here it is only noted."""
    console.print(f"\n[dim]$[/] [bold]scribengin {' '.join(arguments)}[/]")
    return subprocess.run([sys.executable, "-m", "scribengin.cli", *arguments], check=False).returncode


def shown(path: Path) -> str:
    """The path as one would type it here."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


interrupted: list[int] = []

if __name__ == "__main__":
    signal.signal(signal.SIGINT, lambda number, _frame: interrupted.append(number))
    sys.exit(main())
