"""`make demo-yarn`: two chained flows in YARN, from files through a topic into HDFS and a table. One after the other the parts that they
run on are killed; at the end each record must be in both outputs once.

All servers run on this machine, in a folder of this run that is gone afterwards; --keep leaves it.
"""

import argparse
import random
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console

from harness.control_programs import NotInTime
from harness.faults.yarn_ways import YARN_WAYS
from harness.yarn_plane import COLLECT, ROWS, STORE, YarnPlane

ACTS = {
    "executor-killed": "the container of an executor",
    "driver-killed": "the container of a driver, which is the application master",
    "host-lost": "a NodeManager with all of its containers",
    "resource-manager-killed": "the ResourceManager, which comes back with its recovered state",
    "master-killed": "the master of Scribengin",
    "node-killed": "the node of Scribengin, which submits the applications",
    "host-asleep": "no one: a NodeManager and its containers sleep until another driver has written, and then go on",
}
console = Console(highlight=False, soft_wrap=True)


def main() -> int:
    """0 if each record is in both outputs once; else 1."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--only", default="", help=f"acts whose names contain one of these, with commas: {', '.join(ACTS)}")
    options.add_argument("--seed", type=int, default=1, help="chooses the flow and the host that are struck")
    options.add_argument("--keep", action="store_true", help="leave the folder")
    given = options.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    folder = Path(tempfile.mkdtemp(prefix="scribengin-demo-"))
    acts = [act for act in ACTS if any(word in act for word in given.only.split(","))]
    try:
        with YarnPlane(folder, tell=lambda message: console.print(message, style="dim")) as plane:
            return show(plane, acts, given.seed)
    except NotInTime as error:
        console.print(str(error), style="red")
        return 1
    finally:
        if not given.keep:
            shutil.rmtree(folder, ignore_errors=True)


def show(plane: YarnPlane, acts: list[str], seed: int) -> int:
    """The acts, the end, and the check."""
    console.print(f"\nfiles → [bold]{COLLECT}[/] → topic raw → [bold]{STORE}[/] → HDFS and a table; YARN: {plane.yarn.uri}\n")
    for flow in (COLLECT, STORE):
        console.print(f"  {flow}: driver in {plane.driver(flow)}, executors in {', '.join(plane.executors(flow))}")
    for nth, act in enumerate(acts):
        console.print(f"\n[bold]killed:[/] {ACTS[act]}")
        struck_s = time.monotonic()
        about = YARN_WAYS[act](plane, random.Random(f"{seed}/{nth}"))
        plane.wait_arrival()
        console.print(f"  {about}\n  new records in HDFS and in the table [bold]{time.monotonic() - struck_s:.0f} s[/] after the strike")
    console.print("\nno more input; both flows are drained", style="dim")
    plane.drain()
    wrong = plane.judge()
    applications = {flow: len(plane.applications(flow)) for flow in (COLLECT, STORE)}
    told = ", ".join(f"{flow} had {count} applications" for flow, count in applications.items())
    console.print(f"\n{plane.parts * ROWS:,} records were made; {told}")
    for line in wrong:
        console.print(line, style="red")
    if not wrong:
        console.print("[green]each of them is in HDFS once and in the table once, and the audits of both flows balance[/]")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
