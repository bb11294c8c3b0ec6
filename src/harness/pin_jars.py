"""Updates a set of jars: `python -m harness.pin_jars [SET …]` rewrites these sets in `jars.json`, or all, with what Ivy resolves now."""

from __future__ import annotations

import json
import sys
import tempfile
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from scribengin.core.errors import EnvironmentFault
from scribengin.embedded import jars
from scribengin.embedded.jars import ivy_module, run_ivy

if TYPE_CHECKING:
    from collections.abc import Sequence

TABLE = Path(jars.__file__).with_name("jars.json")


def pinned(asked: Sequence[str], *, with_dependencies: bool) -> dict[str, str]:
    """Coordinate → SHA-256 of the given jars and, with `with_dependencies`, of their dependencies. Raises EnvironmentFault if one cannot be
    fetched."""
    with tempfile.TemporaryDirectory(prefix="scribengin-") as name:
        scratch = Path(name)
        pattern = f"{scratch}/jars/[organisation]/[artifact]/[revision]/[artifact]-[revision](-[classifier]).[ext]"
        said = run_ivy(ivy_module(asked, with_dependencies=with_dependencies), pattern, scratch)
        jars = [jar for jar in sorted(scratch.glob("jars/*/*/*/*")) if jar.suffix in (".jar", ".zip")]
        # jars with a classifier are native parts, which are not needed
        plain = [jar for jar in jars if jar.stem == f"{jar.parts[-3]}-{jar.parts[-2]}"]
        found = {
            ":".join(jar.parts[-4:-1]) + ("@zip" if jar.suffix == ".zip" else ""): sha256(jar.read_bytes()).hexdigest() for jar in plain
        }
    if lacking := set(asked) - found.keys():
        raise EnvironmentFault(f"{', '.join(sorted(lacking))} cannot be resolved; output of Ivy:\n{said}", code="jars-missing")
    return found


def main() -> None:
    """Update the named sets, or all sets of all PySpark versions."""
    wanted = sys.argv[1:]
    table = json.loads(TABLE.read_text())
    for version, sets in table.items():
        for name, one in sets.items():
            if wanted and name not in wanted:
                continue
            one["jars"] = pinned(one["asked"], with_dependencies=one["with_dependencies"])
            print(f"PySpark {version}, {name}: {len(one['jars'])} jars", file=sys.stderr)
    TABLE.write_text(json.dumps(table, indent=1) + "\n")


if __name__ == "__main__":
    main()
