"""A folder of two flows with code, a schema and requirements."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

ORDERS = """\
version: 1
name: orders
sources:
  orders: {type: files, path: data, format: json, schema: "id BIGINT"}
steps:
  marked: {from: orders, python: "steps:marked"}
sinks:
  kept: {from: marked, type: files, path: out/kept, format: json}
"""
NUMBERS = """\
from lib.names import SINK
from scribengin import Flow, source

few = source("sequence", id="numbers", rows=10).filter("id < 5", id="few")
flow = Flow("numbers", few.to("files", id=SINK, path="out/few", format="json"))
"""
SCHEMA = '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """`orders.yaml`, `numbers.py`, their modules, and what does not travel: data, state, a hidden folder."""
    folder = tmp_path / "flows"
    write(
        folder,
        {
            "orders.yaml": ORDERS,
            "numbers_flow.py": NUMBERS,
            "steps.py": "from lib.names import MARK\n\ndef marked(row):\n    return row | {'id': row['id'] + MARK}\n",
            "lib/__init__.py": "",
            "lib/names.py": "MARK = 0\nSINK = 'kept'\n",
            "requirements.lock": "orjson==3.11.0\n",
            "data/orders.jsonl": '{"id": 1}\n',
            ".scribengin/installation.json": "{}",
            ".venv/lib/other.py": "",
            "settings.yaml": "colour: blue\nsteps: []\n",
        },
    )
    return folder


def write(folder: Path, texts: dict[str, str]) -> None:
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
