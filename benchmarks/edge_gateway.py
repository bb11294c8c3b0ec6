"""How many MB/s of frames one gateway takes on one core, with a channel in a folder: python benchmarks/edge_gateway.py [--tls] [--mb 800].

The gateway is a process on core 0. The agents are threads of this process on core 1; they send frames that were encoded before. Each
request is answered after its frames are durable. A second line has the time of `GET /edge/v1/agents` after the reports of 1,000 agents.
Each line says what was asked (`bar`), and whether it was met.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import random
import re
import secrets
import signal
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from scribengin.wire.frames import FrameHead, FrameOrigin, encode_frame

FLOW = """\
version: 1
name: bench
sources:
  lines: {type: agents, input: tail, path: /var/log/x.log, format: text, schema: "line STRING", compression: none}
sinks:
  out: {type: files, path: out, format: json, from: lines}
"""
FRAME_ROWS = 2600
LANE = "bench.lines"
BAR_MB_S = 100
BAR_LIST_MS = 300


def lines(seed: int) -> bytes:
    """Lines of 200 bytes, as a web server writes them."""
    chance = random.Random(seed)
    stem = '10.{}.{}.{} - - [29/Nov/2026:08:00:00 +0000] "GET /shop/item/{}?q={} HTTP/1.1" 200 {} "-" "Mozilla/5.0 (X11; Linux x86_64)"'
    made = []
    for _ in range(FRAME_ROWS):
        text = stem.format(*(chance.randrange(256) for _ in range(3)), chance.randrange(10**6), chance.random(), chance.randrange(10**5))
        made.append(text[:199].ljust(199, "x"))
    return ("\n".join(made) + "\n").encode()


def requests_of(agents: int, count: int) -> list[list[bytes]]:
    """For each agent the bodies that it sends: two frames of half a MiB each."""
    payloads = [lines(seed) for seed in range(4)]
    return [
        [
            b"".join(
                encode_frame(
                    FrameHead("records", "none", (2 * n + half) * FRAME_ROWS, FRAME_ROWS, 0, 0, b"\n", FrameOrigin(file="x")), payload
                )
                for half, payload in enumerate((payloads[n % 4], payloads[(n + 1) % 4]))
            )
            for n in range(count)
        ]
        for _ in range(agents)
    ]


def send(url: str, agent: int, bodies: list[bytes], context: ssl.SSLContext | None) -> None:
    host = url.partition("//")[2]
    made = http.client.HTTPConnection(host) if context is None else http.client.HTTPSConnection(host, context=context)
    headers = {"Scribengin-Agent": f"a{agent}", "Scribengin-Incarnation": secrets.token_hex(8), "Scribengin-Committed": "0"}
    for body in bodies:
        made.request("POST", f"/edge/v1/lanes/{LANE}/frames", body, headers)
        answer = made.getresponse()
        text = answer.read()
        assert answer.status == 200, (answer.status, text)


def certificate(folder: Path) -> list[str]:
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem")]
    subprocess.run(command, check=True, capture_output=True)
    return ["--tls-certificate", str(folder / "cert.pem"), "--tls-key", str(folder / "key.pem")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tls", action="store_true")
    parser.add_argument("--mb", type=int, default=800)
    parser.add_argument("--agents", type=int, default=8)
    given = parser.parse_args()
    count = max(1, given.mb // given.agents)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "flow.yaml").write_text(FLOW)
        command = [
            sys.executable,
            "-m",
            "scribengin.cli",
            "gateway",
            "run",
            "--flow",
            "flow.yaml",
            "--folder",
            "gateway",
            "--listen",
            "127.0.0.1:0",
        ]
        command += certificate(folder) if given.tls else []
        log = (folder / "log").open("w+")
        cores = sorted(os.sched_getaffinity(0))
        gateway = subprocess.Popen(command, cwd=folder, stderr=log, preexec_fn=lambda: os.sched_setaffinity(0, cores[:1]))  # noqa: PLW1509
        try:
            os.sched_setaffinity(0, cores[-1:])
            bodies = requests_of(given.agents, count)
            url = ""
            while not url and gateway.poll() is None:
                found = re.search(r"https?://[0-9.:]+", (folder / "log").read_text())
                url = found[0] if found else ""
                time.sleep(0.05)
            assert url, (folder / "log").read_text()
            context = ssl.create_default_context(cafile=str(folder / "cert.pem")) if given.tls else None
            before = _cpu_s(gateway.pid)
            start = time.perf_counter()
            threads = [threading.Thread(target=send, args=(url, n, each, context)) for n, each in enumerate(bodies)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            elapsed_s = time.perf_counter() - start
            cpu_s = _cpu_s(gateway.pid) - before
            listed = list_agents(url, 1000, context)
        finally:
            gateway.send_signal(signal.SIGTERM)
            gateway.wait()
        sent = sum(len(body) for each in bodies for body in each)
        stored = sum(path.stat().st_size for path in folder.rglob("*.frames"))
        print(
            json.dumps(
                {
                    "mb_per_s": round(sent / 1e6 / elapsed_s, 1),
                    "bar": BAR_MB_S,
                    "met": sent / 1e6 / elapsed_s >= BAR_MB_S,
                    "mb_per_cpu_s": round(sent / 1e6 / cpu_s, 1),
                    "core": round(cpu_s / elapsed_s, 2),
                    "tls": given.tls,
                    "agents": given.agents,
                    "stored_is_sent": stored == sent,
                    "exit": gateway.returncode,
                }
            )
        )
        print(json.dumps(listed))


def list_agents(url: str, agents: int, context: ssl.SSLContext | None) -> dict[str, float]:
    """Post the reports of agents, then list them: milliseconds."""
    host = url.partition("//")[2]
    made = http.client.HTTPConnection(host) if context is None else http.client.HTTPSConnection(host, context=context)

    def call(method: str, path: str, body: str | None = None) -> bytes:
        made.request(method, path, body)
        answer = made.getresponse()
        text = answer.read()
        assert answer.status == 200, (answer.status, text)
        return text

    start = time.perf_counter()
    for n in range(agents):
        lane = {"incarnation": "0" * 24, "read": 10**6, "stored": 10**6, "committed": 10**5, "waiting_bytes": 10**7, "oldest_ms": 1}
        call("POST", "/edge/v1/report", json.dumps({"agent": f"web{n:04}", "host": f"web{n:04}.local", "lanes": {LANE: lane, "x.y": lane}}))
    reported_ms = (time.perf_counter() - start) * 1000 / agents
    times = []
    for _ in range(20):
        start = time.perf_counter()
        rows = json.loads(call("GET", "/edge/v1/agents"))["agents"]
        times.append((time.perf_counter() - start) * 1000)
        assert len(rows) == agents
    return {
        "agents": agents,
        "report_ms": round(reported_ms, 2),
        "list_median_ms": round(sorted(times)[10], 1),
        "list_most_ms": round(max(times), 1),
        "bar": BAR_LIST_MS,
        "met": max(times) < BAR_LIST_MS,
    }


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
