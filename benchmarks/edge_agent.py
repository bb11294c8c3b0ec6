"""How fast an agent hands lines over, beside a bare Python loop that reads the same file and posts it: to one small gateway, in one run,
each on one core.

The agent numbers, compresses, keeps in a write-ahead log with `sync: 100ms`, sends, and waits for commits; the loop reads a mebibyte, cuts
it at the last line, and posts it. The gateway, a process of its own, checks frames and keeps nothing.

    python benchmarks/edge_agent.py [--lines 4000000] [--input tail|own_lines] [--idle 200]
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
LINE_BYTES = 200
PLAIN = "text/plain"
_INPUTS = ("tail", "own_lines")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, default=4_000_000)
    parser.add_argument("--input", default=_INPUTS[0], choices=_INPUTS)
    parser.add_argument("--idle", type=int, default=200, help="files of the idle agent")
    parser.add_argument("--idle-s", type=float, default=20.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--gateway", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--loop", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.gateway:
        _serve()
    elif arguments.loop:
        _loop(*arguments.loop)
    else:
        _measure(arguments)


def _measure(arguments: argparse.Namespace) -> None:
    cores = sorted(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory(prefix="scribengin-edge-") as name:
        folder = Path(name)
        file = folder / "access.log"
        _write_lines(file, arguments.lines)
        rates: dict[str, list[float]] = {"loop": [], "agent": []}
        cpu: list[float] = []
        for round_number in range(arguments.rounds):
            rates["loop"].append(_time_loop(file, arguments.lines, cores))
            rate, seconds = _time_agent(folder / f"agent-{round_number}", file, arguments, cores)
            rates["agent"].append(rate)
            cpu.append(seconds)
        loop, agent = (statistics.median(rates[name]) for name in ("loop", "agent"))
        print(f"bare loop: {loop:,.0f} lines/s ({loop * LINE_BYTES / 1e6:.0f} MB/s)")
        print(f"agent, {arguments.input}, end_to_end, zstd, sync 100ms: {agent:,.0f} lines/s ({agent * LINE_BYTES / 1e6:.0f} MB/s)")
        print(f"ratio agent / loop: {agent / loop:.2f}; CPU of the agent: {statistics.median(cpu) / arguments.lines * 1e6:.2f} µs a line")
        if arguments.idle:
            _measure_idle(folder / "idle", arguments, cores)


def _write_lines(path: Path, lines: int) -> None:
    """Lines like those of a web server: they compress about four to one."""
    chosen = random.Random(7)
    block: list[bytes] = []
    for _ in range(50_000):
        text = (
            f"10.{chosen.randrange(256)}.{chosen.randrange(256)}.{chosen.randrange(256)} - - [29/Nov/2026:02:31:{chosen.randrange(60):02} "
            f'+0000] "GET /shop/{chosen.getrandbits(64):016x}/item?id={chosen.randrange(10**9)} HTTP/1.1" 200 {chosen.randrange(10**5)} '
        )
        block.append((text + '"Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 ' + "x" * 200)[: LINE_BYTES - 1].encode() + b"\n")
    data = b"".join(block)
    with path.open("wb") as file:
        whole, rest = divmod(lines, len(block))
        for _ in range(whole):
            file.write(data)
        file.write(data[: rest * LINE_BYTES])


def _time_loop(file: Path, lines: int, cores: list[int]) -> float:
    with _gateway(cores) as url:
        command = [sys.executable, str(Path(__file__)), "--loop", url, str(file)]
        began = time.monotonic()
        with subprocess.Popen(command, env=_environment(), preexec_fn=lambda: os.sched_setaffinity(0, cores[:1])) as process:  # noqa: PLW1509
            assert process.wait() == 0
        return lines / (time.monotonic() - began)


def _loop(url: str, file: str) -> None:
    """What one would write without an agent: no numbers, no log, no compression."""
    connection = http.client.HTTPConnection(url.removeprefix("http://"))
    with Path(file).open("rb") as lines:
        rest = b""
        while block := lines.read(2**20):
            block = rest + block
            end = block.rfind(b"\n") + 1
            rest = block[end:]
            connection.request("POST", "/plain", block[:end], {"Content-Type": PLAIN})
            answer = connection.getresponse()
            answer.read()
            assert answer.status == 200


def _time_agent(data: Path, file: Path, arguments: argparse.Namespace, cores: list[int]) -> tuple[float, float]:
    with _gateway(cores, {"path": [str(file)], "from": "beginning"}, arguments.input) as url:
        began = time.monotonic()
        process = _start_agent(url, data, arguments, cores)
        try:
            while _stored(url) < arguments.lines:
                assert process.poll() is None, "the agent has ended"
                time.sleep(0.02)
            seconds = time.monotonic() - began
            cpu = _cpu_s(process.pid)
        finally:
            process.terminate()
            process.wait()
    return arguments.lines / seconds, cpu


def _measure_idle(folder: Path, arguments: argparse.Namespace, cores: list[int]) -> None:
    logs = folder / "logs"
    logs.mkdir(parents=True)
    for number in range(arguments.idle):
        (logs / f"{number}.log").write_bytes(b"the first line of file %d\n" % number)
    pattern = str(logs / "*.log") if arguments.input == "tail" else str(logs / "0.log")
    with _gateway(cores, {"path": [pattern], "from": "beginning"}, arguments.input) as url:
        expected = arguments.idle if arguments.input == "tail" else 1
        began = time.monotonic()
        process = _start_agent(url, folder / "agent", arguments, cores)
        try:
            while not _stored(url):
                time.sleep(0.005)
            first = time.monotonic() - began
            while _stored(url) < expected:
                time.sleep(0.02)
            time.sleep(3.0)
            before = _cpu_s(process.pid)
            time.sleep(arguments.idle_s)
            cpu = (_cpu_s(process.pid) - before) / arguments.idle_s
            status = Path(f"/proc/{process.pid}/status").read_text()
            resident = int(status.split("VmRSS:")[1].split()[0]) / 1024
        finally:
            process.terminate()
            process.wait()
    print(f"idle with {expected} files: {cpu:.2%} of a core, {resident:.0f} MiB; first line stored {first:.2f} s after the start")


def _start_agent(url: str, data: Path, arguments: argparse.Namespace, cores: list[int]) -> subprocess.Popen[bytes]:
    module = ["-m", "scribengin.agent"] if arguments.input == "tail" else [str(ROOT / "tests" / "agent" / "own_input.py")]
    command = [sys.executable, *module, "--gateway", url, "--data", str(data), "--level", "warning"]
    return subprocess.Popen(command, env=_environment(), preexec_fn=lambda: os.sched_setaffinity(0, cores[:1]))  # noqa: PLW1509


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _stored(url: str) -> int:
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=10)
    with contextlib.closing(connection):
        connection.request("GET", "/stored")
        return int(connection.getresponse().read())


@contextlib.contextmanager
def _gateway(cores: list[int], options: dict[str, Any] | None = None, input_name: str = "") -> Any:
    command = [sys.executable, str(Path(__file__)), "--gateway"]
    environment = {**_environment(), "EDGE_OPTIONS": json.dumps(options or {}), "EDGE_INPUT": input_name}
    process = subprocess.Popen(
        command,
        env=environment,
        stdout=subprocess.PIPE,
        preexec_fn=lambda: os.sched_setaffinity(0, cores[-1:]),  # noqa: PLW1509
    )
    try:
        assert process.stdout is not None
        yield process.stdout.readline().decode().strip()
    finally:
        process.kill()
        process.wait()


def _serve() -> None:
    import msgspec

    from scribengin.wire.frames import find_frames
    from scribengin.wire.protocol import AgentConfig, FramesAnswer, LaneConfig, ReportAnswer

    options: dict[str, Any] = json.loads(os.environ["EDGE_OPTIONS"])
    name = os.environ["EDGE_INPUT"]
    if name == "own_lines" and options:
        options["path"] = options["path"][0]
    config = AgentConfig("1", {"web.access": LaneConfig("web", "access", name, options=_complete(name, options))} if options else {})
    stored = 0

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def log_message(self, *_: Any) -> None:
            pass

        def do_GET(self) -> None:
            self._answer(str(stored).encode() if self.path == "/stored" else msgspec.json.encode(config))

        def do_POST(self) -> None:
            nonlocal stored
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers["Content-Type"] == PLAIN:
                self._answer(b"")
            elif self.path.endswith("/report"):
                self._answer(msgspec.json.encode(ReportAnswer("1")))
            else:
                for found in find_frames(body):
                    assert found.head is not None
                    assert found.head.sequence == stored
                    stored = found.head.next
                self._answer(msgspec.json.encode(FramesAnswer(stored, stored)))

        def _answer(self, body: bytes) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(f"http://127.0.0.1:{server.server_address[1]}", flush=True)
    server.serve_forever()


def _complete(name: str, options: dict[str, Any]) -> dict[str, Any]:
    """The options with which a gateway would send this lane."""
    defaults = {"exclude": [], "encoding": "utf-8", "multiline": "", "poll": 0.25, "follow_links": True}
    return {**(defaults if name == "tail" else {}), **options}


if __name__ == "__main__":
    main()
