"""`make demo-up`: the same flow, managed: a control plane on this machine, a worker that is killed, and the proof that nothing was lost.

Everything it does is a command you can type. It works in a folder of its own, which is gone afterwards; --keep leaves it.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import duckdb
from rich.console import Console

from harness.tweets import SEED, WrittenTweets, write_tweets

HERE = Path(__file__).parent
WITHIN_S = 300.0
console = Console(highlight=False)


def main() -> int:
    """0 where all went as it must."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--size", type=int, default=300_000, help="how many tweets")
    options.add_argument("--keep", action="store_true", help="leave the folder")
    given = options.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="scribengin-demo-"))
    os.environ["SCRIBENGIN_HOME"] = str(folder / "home")
    try:
        for name in ("flow.yaml", "steps.py"):
            shutil.copy(HERE / name, folder)
        os.chdir(folder)
        console.print(f"In {folder}: {given.size:,} tweets …", style="dim")
        written = write_tweets(folder / "data", rows=given.size, seed=SEED)
        return show(written)
    finally:
        if not given.keep:
            shutil.rmtree(folder, ignore_errors=True)


def show(written: WrittenTweets) -> int:
    """The commands, in the folder of the flow."""
    told("scribengin server dev &")
    up = subprocess.Popen([*COMMAND, "server", "dev"], start_new_session=True)  # a Ctrl-C here is not its own
    try:
        within(lambda: (Path("home") / "up.json").exists() or up.poll() is not None, "up")
        typed("apply", "flow.yaml", "--wait")
        typed("list")
        within(lambda: commits() > 0, "a first Batch")
        typed("status", "tweets")
        worker = described()["tiers"][0]
        console.print(f"\n[dim]$[/] [bold]kill -9 {worker['process']['pid']}[/]   [dim]the worker {worker['worker']}[/]")
        killed_s = time.monotonic()
        os.kill(worker["process"]["pid"], signal.SIGKILL)
        within(lambda: described()["tiers"][0]["worker"] != worker["worker"], "another worker")
        within(lambda: described()["status"]["state"] == "running", "a flow that runs")
        console.print(f"[dim]it runs again {time.monotonic() - killed_s:.0f} s after the kill[/]")
        typed("drain", "tweets", "--wait", "300s")
        typed("status", "tweets")
    finally:
        told("fg, Ctrl-C")
        up.send_signal(signal.SIGINT)
        up.wait()
    rows, distinct = duckdb.sql("SELECT count(*), count(DISTINCT id) FROM read_parquet('out/kept/*.parquet')").fetchall()[0]
    right = rows == distinct == len(written.kept_ids)
    verdict = "[green]exactly those[/]" if right else "[red]NOT those[/]"
    console.print(
        f"\n[bold]out/kept[/]  {rows:,} tweets, {distinct:,} different ids; the generator made {len(written.kept_ids):,} to keep: {verdict}"
    )
    return 0 if right else 1


def described() -> dict[str, Any]:
    """What `status NAME --json` says."""
    said = subprocess.run([*COMMAND, "status", "tweets", "--json"], capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(said.stdout)["result"]
    return found


def commits() -> int:
    """Files that have come out so far."""
    return len(list(Path("out/kept").glob("*.parquet"))) if Path("out/kept").is_dir() else 0


def typed(*arguments: str) -> None:
    """Run a command as a person would, saying so. Raises CalledProcessError where it fails."""
    told(f"scribengin {' '.join(arguments)}")
    subprocess.run([*COMMAND, *arguments], check=True)


def told(line: str) -> None:
    """As it would be typed."""
    console.print(f"\n[dim]$[/] [bold]{line}[/]")


def within(true: Any, what: str) -> None:
    """Raises TimeoutError where it is not so in time."""
    ends_s = time.monotonic() + WITHIN_S
    while not true():
        if time.monotonic() > ends_s:
            raise TimeoutError(f"no sign of {what} after {WITHIN_S:.0f} s")
        time.sleep(0.2)


COMMAND = (sys.executable, "-m", "scribengin.cli")

if __name__ == "__main__":
    sys.exit(main())
