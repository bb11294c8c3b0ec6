"""Planner processes of one Java: the first begins as Spark starts it, the others are forked, and each ends as Spark expects."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from scribengin.core.process import within
from scribengin.spark.session import python_command
from scribengin.spark.source_runner import RUNNER

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="elsewhere each is a new process")

JAVA = f"""
import os, socket, subprocess, sys
from pathlib import Path
from pyspark.serializers import UTF8Deserializer, read_int, write_with_length

def begin(**more):
    with socket.create_server(("127.0.0.1", 0)) as server:
        known = {{"PYTHON_WORKER_FACTORY_PORT": str(server.getsockname()[1]), "PYTHON_WORKER_FACTORY_SECRET": "s"}}
        started = subprocess.Popen([sys.argv[1], "-m", "{RUNNER}"], env=os.environ | known | more, stderr=subprocess.DEVNULL)
        link, _ = server.accept()
    file = link.makefile("rwb", 65536)
    assert UTF8Deserializer().loads(file) == "s"
    write_with_length(b"ok", file)
    file.flush()
    return started, read_int(file), link, file

def parent(pid):
    return int(Path(f"/proc/{{pid}}/stat").read_text().rpartition(")")[2].split()[1])

def is_there(pid):
    try:
        return Path(f"/proc/{{pid}}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
"""
"""what Spark does, and what Linux knows of it"""


def said(folder: Path, text: str) -> list[str]:
    answer = subprocess.run(
        [sys.executable, "-c", JAVA + text, python_command(folder, "local[2]")], capture_output=True, text=True, check=False
    )
    assert answer.returncode == 0, answer.stderr
    return answer.stdout.split()


def test_the_second_is_forked_in_its_own_environment_and_ends_with_the_process_that_spark_knows(tmp_path: Path) -> None:
    forker = said(
        tmp_path,
        """
first, one, *_ = begin()
assert one == first.pid
second, two, *_ = begin(OWN="yes")
assert two != second.pid and parent(two) != os.getpid()
forker = parent(two)
assert parent(forker) == one
assert b"OWN=yes" not in Path(f"/proc/{one}/environ").read_bytes()
third, three, *_ = begin()
assert parent(three) == forker
assert os.readlink(f"/proc/{two}/cwd") == os.getcwd()
second.terminate()
second.wait()
while is_there(two):
    pass
assert is_there(three) and third.poll() is None
first.terminate()
first.wait()
assert is_there(three), "the others do not need the first"
print(forker, three)
""",
    )
    # with their Java all of them are gone
    assert within(60, lambda: not any(os.path.exists(f"/proc/{pid}") for pid in forker))  # noqa: PTH110


def test_one_that_ends_by_itself_ends_the_process_that_spark_knows(tmp_path: Path) -> None:
    said(
        tmp_path,
        """
begin()
second, two, link, file = begin()
file.close()
link.close()
second.wait()
assert not is_there(two)
""",
    )


def test_several_that_begin_at_once_all_work(tmp_path: Path) -> None:
    said(
        tmp_path,
        """
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(4) as pool:
    begun = list(pool.map(lambda _: begin(), range(4)))
assert len({pid for _, pid, *_ in begun}) == 4
assert sum(pid == started.pid for started, pid, *_ in begun) < 4
""",
    )


def test_without_the_forked_process_each_begins_as_the_first_did(tmp_path: Path) -> None:
    said(
        tmp_path,
        """
import signal
begin()
_, two, *_ = begin()
os.kill(parent(two), signal.SIGKILL)
third, three, *_ = begin()
assert third.pid == three
""",
    )
