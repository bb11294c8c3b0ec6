"""What a command loads to ask a master: no server, no Spark."""

from __future__ import annotations

import subprocess
import sys

import pytest

from scribengin.client.transport import address_of
from scribengin.core.errors import Refused

HEAVY = ("fastapi", "pydantic", "starlette", "uvicorn", "pyspark", "duckdb")


def test_the_client_loads_no_server() -> None:
    program = f"import sys, scribengin.client.client, scribengin.api.views; print([name for name in {HEAVY} if name in sys.modules])"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("text", "address"),
    [("a:8080", "http://a:8080"), (" https://a:1/ ", "https://a:1"), ("http://[::1]:80", "http://[::1]:80")],
)
def test_an_address_is_read_as_people_write_it(text: str, address: str) -> None:
    assert address_of(text) == address


@pytest.mark.parametrize("text", ["", "ftp://a", "http://", "http://a/path", "http://a?x=1", "http://ann:secret@a"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(Refused) as told:
        address_of(text)
    assert told.value.code == "master-address"
