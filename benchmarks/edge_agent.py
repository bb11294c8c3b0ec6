"""How fast an agent hands lines over, beside a bare Python loop that reads the same file and posts it, and beside Fluent Bit if
`fluent-bit` is on the path: to one small gateway, in one run, in turn, each on one core.

The agent numbers, compresses, keeps in a write-ahead log with `sync: 100ms`, sends, and waits for commits; the loop reads a mebibyte, cuts
it at the last line, and posts it. Fluent Bit keeps its position in a database and its chunks on disk, and posts lines of JSON, compressed
with gzip and with zstd. The gateway, a process of its own, keeps nothing: it checks frames, and counts the lines of the others.

    python benchmarks/edge_agent.py [--lines 4000000] [--input tail|own_lines] [--idle 200] [--compress gzip zstd]
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
LINE_BYTES = 200
PLAIN = "text/plain"
_INPUTS = ("tail", "own_lines")
_FLUENT_BIT = """\
[SERVICE]
    flush                     {flush}
    log_level                 warn
    storage.path              {data}/chunks
    storage.sync              full
    storage.max_chunks_up     1000
[INPUT]
    name                      tail
    path                      {path}
    read_from_head            on
    db                        {data}/position.db
    buffer_chunk_size         {buffer}
    buffer_max_size           {buffer}
    storage.type              filesystem
[OUTPUT]
    name                      http
    match                     *
    host                      127.0.0.1
    port                      {port}
    uri                       /lines
    format                    json_lines
    compress                  {compress}
    retry_limit               no_limits
"""
_FLUSH_S = 0.2
_BUFFER = "1M"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, default=4_000_000)
    parser.add_argument("--input", default=_INPUTS[0], choices=_INPUTS)
    parser.add_argument("--idle", type=int, default=200, help="files of the idle agent")
    parser.add_argument("--idle-s", type=float, default=20.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--compress", nargs="+", default=["gzip", "zstd"], choices=("gzip", "zstd"), help="what Fluent Bit compresses with")
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
    program = shutil.which("fluent-bit")
    compressions: list[str] = arguments.compress if program else []
    with tempfile.TemporaryDirectory(prefix="scribengin-edge-") as name:
        folder = Path(name)
        file = folder / "access.log"
        _write_lines(file, arguments.lines)
        measured: dict[str, list[tuple[float, float]]] = {}
        for round_number in range(arguments.rounds):
            measured.setdefault("loop", []).append(_time_loop(file, arguments.lines, cores))
            measured.setdefault("agent", []).append(_time_agent(folder / f"agent-{round_number}", file, arguments, cores))
            for compress in compressions:
                data = folder / f"fluent-bit-{compress}-{round_number}"
                measured.setdefault(compress, []).append(_time_fluent_bit(data, file, arguments.lines, cores, compress))
        rates = {who: statistics.median(rate for rate, _ in rounds) for who, rounds in measured.items()}
        cpu = {who: statistics.median(seconds for _, seconds in rounds) / arguments.lines * 1e6 for who, rounds in measured.items()}
        print(f"bare loop: {_told(rates['loop'])}")
        print(f"agent, {arguments.input}, end_to_end, zstd, sync 100ms: {_told(rates['agent'])}, {cpu['agent']:.2f} µs of CPU a line")
        for compress in compressions:
            disk = "tail with a database, chunks on disk with storage.sync full and max_chunks_up 1000"
            settings = f"{disk}, buffer {_BUFFER}, flush {_FLUSH_S} s, json_lines, {compress}"
            print(f"{_version()}, {settings}: {_told(rates[compress])}, {cpu[compress]:.2f} µs of CPU a line")
        print(f"ratio agent / loop: {rates['agent'] / rates['loop']:.2f}")
        for compress in compressions:
            print(f"ratio agent / Fluent Bit with {compress}: {rates['agent'] / rates[compress]:.2f}")
        print("every round: all lines arrived, none twice")
        if arguments.idle:
            _measure_idle(folder / "idle", arguments, cores, "")
        if arguments.idle and compressions:
            _measure_idle(folder / "idle-fluent-bit", arguments, cores, compressions[0])


def _told(rate: float) -> str:
    return f"{rate:,.0f} lines/s ({rate * LINE_BYTES / 1e6:.0f} MB/s)"


def _version() -> str:
    return subprocess.run(["fluent-bit", "--version"], capture_output=True, text=True, check=True).stdout.splitlines()[0]


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


def _time_loop(file: Path, lines: int, cores: list[int]) -> tuple[float, float]:
    with _gateway(cores) as url:
        command = [sys.executable, str(Path(__file__)), "--loop", url, str(file)]
        began = time.monotonic()
        with subprocess.Popen(command, env=_environment(), preexec_fn=lambda: os.sched_setaffinity(0, cores[:1])) as process:  # noqa: PLW1509
            assert process.wait() == 0
        rate = lines / (time.monotonic() - began)
        while (stored := _stored(url)) < lines:
            assert time.monotonic() < began + 300, f"{stored} lines arrived"
            time.sleep(0.02)
        assert stored == lines
    return rate, 0.0


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
        return _until_all(_start_agent(url, data, arguments, cores), url, arguments.lines, began)


def _time_fluent_bit(data: Path, file: Path, lines: int, cores: list[int], compress: str) -> tuple[float, float]:
    with _gateway(cores) as url:
        began = time.monotonic()
        return _until_all(_start_fluent_bit(url, data, str(file), compress, cores), url, lines, began)


def _until_all(process: subprocess.Popen[bytes], url: str, lines: int, began: float) -> tuple[float, float]:
    """Lines a second, and the seconds of CPU."""
    try:
        while _stored(url) < lines:
            assert process.poll() is None, "it has ended"
            time.sleep(0.02)
        seconds = time.monotonic() - began
        cpu = _cpu_s(process.pid)
    finally:
        process.kill()
        process.wait()
    assert _stored(url) == lines
    return lines / seconds, cpu


def _measure_idle(folder: Path, arguments: argparse.Namespace, cores: list[int], compress: str) -> None:
    """Of an agent, or of Fluent Bit if it is said what that compresses with."""
    logs = folder / "logs"
    logs.mkdir(parents=True)
    for number in range(arguments.idle):
        (logs / f"{number}.log").write_bytes(b"the first line of file %d\n" % number)
    all_files = bool(compress) or arguments.input == "tail"
    pattern = str(logs / ("*.log" if all_files else "0.log"))
    expected = arguments.idle if all_files else 1
    with _gateway(cores, {} if compress else {"path": [pattern], "from": "beginning"}, arguments.input) as url:
        began = time.monotonic()
        data = folder / "data"
        process = _start_fluent_bit(url, data, pattern, compress, cores) if compress else _start_agent(url, data, arguments, cores)
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
            process.kill()
            process.wait()
    who = "Fluent Bit" if compress else "agent"
    print(f"{who}, idle with {expected} files: {cpu:.2%} of a core, {resident:.0f} MiB; first line stored {first:.2f} s after the start")


def _start_fluent_bit(url: str, data: Path, path: str, compress: str, cores: list[int]) -> subprocess.Popen[bytes]:
    data.mkdir(parents=True)
    settings = data / "fluent-bit.conf"
    port = url.rpartition(":")[2]
    settings.write_text(_FLUENT_BIT.format(data=data, path=path, port=port, compress=compress, flush=_FLUSH_S, buffer=_BUFFER))
    command = ["fluent-bit", "--quiet", "--config", str(settings)]
    return subprocess.Popen(command, preexec_fn=lambda: os.sched_setaffinity(0, cores[:1]))  # noqa: PLW1509


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
    import zlib

    import msgspec

    from scribengin.core.zstd import decompress
    from scribengin.wire.frames import find_frames
    from scribengin.wire.protocol import AgentConfig, FramesAnswer, LaneConfig, ReportAnswer

    options: dict[str, Any] = json.loads(os.environ["EDGE_OPTIONS"])
    name = os.environ["EDGE_INPUT"]
    if name == "own_lines" and options:
        options["path"] = options["path"][0]
    config = AgentConfig("1", {"web.access": LaneConfig("web", "access", name, options=_complete(name, options))} if options else {})
    stored = 0
    counting = threading.Lock()

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
            if self.headers["Content-Type"] == PLAIN or self.path == "/lines":
                self._answer(b"")
                match self.headers["Content-Encoding"]:
                    case "gzip":
                        body = zlib.decompress(body, 31)
                    case "zstd":
                        body = decompress(body)
                with counting:
                    stored += body.count(b"\n")
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
