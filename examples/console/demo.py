"""`make demo-console`: a control plane, a broker and five flows under load, for a look at the web console: one flow fails at a line of its
Python, one falls behind, one waits for room in a channel, one has dead letters, one is well.

Everything of the run lies in a folder of its own, which is gone at the end, however it ends.
"""

import argparse
import json
import shutil
import signal
import tempfile
import threading
import time
from pathlib import Path

from confluent_kafka import Producer
from rich.console import Console

from harness.dev_plane import DevPlane
from harness.edge_plane import within
from scribengin.embedded.jars import fetch
from scribengin.embedded.kafka import JARS, KafkaCluster

HERE = Path(__file__).parent
EXPECTED = {"well": "running", "behind": "degraded", "failing": "failed", "full": "running", "letters": "running"}
"""flow → the state that the demo waits for"""
_LIMIT_S = 600
_STEP_S = 0.1
_ODD_EVERY, _STRANGE_EVERY = 50, 200
console = Console(highlight=False)


def main() -> int:
    """0 if all flows came into the state that they show; it runs until Ctrl-C, unless `--once`."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rate", type=int, default=500, help="orders a second")
    options.add_argument("--port", type=int, default=0, help="of the console; 0: a free one")
    options.add_argument("--folder", type=Path, default=HERE, help="where the run's own folder is made")
    options.add_argument("--once", action="store_true", help="end when all flows show what they are to show")
    asked = options.parse_args()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _stop)
    folder = Path(tempfile.mkdtemp(prefix=".demo-", dir=asked.folder)).absolute()
    try:
        return demo(folder, asked)
    except KeyboardInterrupt:
        console.print("\nStopped; nothing is left.")
        return 130
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def demo(folder: Path, asked: argparse.Namespace) -> int:
    """From nothing to five flows."""
    fetch(JARS, lambda line: console.print(line, style="dim"))
    with KafkaCluster(folder / "kafka") as broker:
        environment = {"BOOTSTRAP": broker.bootstrap, "OUT": str(folder / "out")}
        plane = DevPlane(folder, "--port", str(asked.port), environment=environment)
        ended = threading.Event()
        writer = threading.Thread(target=_write, args=(broker.bootstrap, asked.rate, ended))
        with plane.up():
            console.print(f"The console: [bold]{plane.url}[/]")
            writer.start()
            try:
                shutil.copytree(HERE / "flows", folder / "flows")
                plane.command("apply", "flows")
                console.print(f"Five flows are applied; {asked.rate} orders a second are written. They start, which takes a minute or two.")
                with plane.client() as client:
                    for flow, state in EXPECTED.items():
                        within(_LIMIT_S, lambda flow=flow, state=state: _state(client, flow) == state, f"{flow} is {state}")
                        console.print(f"  {flow} is {state}")
                    within(_LIMIT_S, lambda: client.dead_letter_counts("letters").dead > 0, "there are dead letters")
                    within(
                        _LIMIT_S, lambda: any(edge["paused"] for edge in client.metrics("full", step_s=60)["edges"]), "the channel is full"
                    )
                    console.print("  letters has dead letters; the channel of full has no room")
                if asked.once:
                    return 0
                console.print(f"Look around: [bold]{plane.url}[/]. Ctrl-C ends all of it.")
                while True:
                    time.sleep(1)
            finally:
                ended.set()
                writer.join()


def _stop(*_: object) -> None:
    raise KeyboardInterrupt


def _state(client, flow: str) -> str:
    status = client.flow(flow).status
    return "created" if status is None else status.state


def _write(bootstrap: str, rate: int, ended: threading.Event) -> None:
    """Write orders until the end: one of fifty without an amount, one of two hundred from a country whose tax rate is missing."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50})
    number, each = 0, max(1, round(rate * _STEP_S))
    while not ended.wait(_STEP_S):
        for _ in range(each):
            number += 1
            order = {
                "id": number,
                "country": "CH" if number % _STRANGE_EVERY == 0 else ("DE", "FR")[number % 2],
                "amount": number % 97 + 0.5,
            }
            if number % _ODD_EVERY == 0:
                del order["amount"]
            producer.produce("orders", json.dumps(order).encode())
        producer.flush(10)


if __name__ == "__main__":
    raise SystemExit(main())
