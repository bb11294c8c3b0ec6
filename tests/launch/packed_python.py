"""Archives with a Python, as venv-pack makes them: packages, and a link to the Python of this machine."""

from __future__ import annotations

import io
import re
import sys
import tarfile
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from scribengin import core

MINOR = f"python3.{sys.version_info.minor}"
SITE = f"lib/{MINOR}/site-packages"
SOURCE = Path(core.__file__).parents[1]
_NAME = re.compile(r"[\w.-]+")


def pack_python(path: Path, *names: str, program: str = "", missing: tuple[str, ...] = (), mark: str = "") -> Path:
    """Make an archive of the running environment.

    Args:
        path: the file.
        names: the distributions in it, with all that they require; Scribengin's source is always in it.
        program: where its `bin/python` leads; by default to the Python of this environment.
        missing: members whose path starts so are left out.
        mark: a text in it, which makes its content another one.
    """
    home = Path(getattr(sys, "_base_executable", sys.executable)).resolve()
    with tarfile.open(path, "w:gz", compresslevel=1) as archive:

        def kept(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
            return None if member.name.startswith(missing or ("\0",)) or "__pycache__" in member.name else member

        def write(name: str, text: str) -> None:
            member = tarfile.TarInfo(name)
            member.size = len(text.encode())
            if kept(member):
                archive.addfile(member, io.BytesIO(text.encode()))

        link = tarfile.TarInfo("bin/python")
        link.type, link.linkname = tarfile.SYMTYPE, program or str(home)
        if kept(link):
            archive.addfile(link)
        write("pyvenv.cfg", f"home = {home.parent}\nversion = {sys.version.split()[0]}\n")
        write("mark", mark)
        archive.add(SOURCE, f"{SITE}/scribengin", filter=kept)
        for name in _closure(names):
            found = distribution(name)
            for top in sorted({file.parts[0] for file in found.files or () if file.parts[0] not in ("..", "__pycache__")}):
                place = Path(str(found.locate_file(top)))
                if place.exists() and not (name == "scribengin" and place.suffix == ".pth"):
                    archive.add(place, f"{SITE}/{top}", filter=kept)
    return path


def _closure(names: tuple[str, ...]) -> list[str]:
    """The distributions with all that they require here, and no extras."""
    found, left = dict[str, None](), [*names]
    while left:
        name = left.pop().lower().replace("_", "-")
        if name in found:
            continue
        try:
            requires = distribution(name).requires or []
        except PackageNotFoundError:  # not for this Python or system
            continue
        found[name] = None
        left += [match[0] for each in requires if "extra ==" not in each and (match := _NAME.match(each))]
    return [*found]
