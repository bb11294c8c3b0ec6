"""How Spark's settings reach a worker: a file that only its user may read, and the words that make PySpark's `spark-submit` read it.

None of them is in a command line, where every user would see a secret among them.
"""

from __future__ import annotations

import os
import shlex
import struct
from typing import TYPE_CHECKING

from scribengin.core.secret import Secret
from scribengin.core.storage import explained

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

NAME = "spark.properties"
_ESCAPES = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f"}


def write_spark_settings(folder: Path, settings: Mapping[str, str | Secret]) -> None:
    """Write the file anew, with mode 0600 from its first moment. Raises EnvironmentFault."""
    path = folder / NAME
    lines = []
    for name, value in sorted(settings.items()):
        text = value.reveal() if isinstance(value, Secret) else value
        lines.append(f"{_escaped(name, ' :=#!')}={_escaped(text)}\n")
    with explained(f"{path} cannot be written"):
        path.unlink(missing_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
            file.write("".join(lines))


def spark_environment(folder: Path, master: str) -> dict[str, str]:
    """What makes any PySpark program below it read the file, and take this master unless it names another one.

    `SCRIBENGIN_SPARK_MASTER` is Scribengin's own setting: its session names the master, and checks what it got.
    """
    words = ["--master", master, "--properties-file", str(folder / NAME), "--load-spark-defaults", "pyspark-shell"]
    return {"SCRIBENGIN_SPARK_MASTER": master, "PYSPARK_SUBMIT_ARGS": shlex.join(words)}


def _escaped(text: str, further: str = "") -> str:
    """As a properties file of Java has it, in ASCII: its readers do not agree on any other encoding."""
    said = "".join(_ESCAPES.get(letter) or (f"\\{letter}" if letter in further else _in_ascii(letter)) for letter in text)
    return f"\\{said}" if said.startswith(" ") else said


def _in_ascii(letter: str) -> str:
    return letter if letter.isascii() else "".join(f"\\u{unit:04x}" for (unit,) in struct.iter_unpack(">H", letter.encode("utf-16-be")))
