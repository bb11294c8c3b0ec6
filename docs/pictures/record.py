"""Records the pictures of the README from a real run in a real terminal: python docs/pictures/record.py [--size 1000000]. Needs tmux.

Run it on a quiet machine: the pictures show how fast that one is.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.text import Text

HERE = Path(__file__).parent
EXAMPLE = HERE.parents[1] / "examples" / "tweets"
WIDTH, HEIGHT = 108, 40
_SOCKET = f"scribengin-{os.getpid()}"
_SHARE = re.compile(r"━\s+(\d+)%")


def main() -> None:
    """Run the example in a terminal, and keep a screen from its midst and the last one."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--size", type=int, default=1_000_000)
    size = options.parse_args().size
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file in ("flow.yaml", "steps.py", "generate.py"):
            shutil.copy(EXAMPLE / file, folder)
        subprocess.run([sys.executable, "generate.py", "--size", str(size)], cwd=folder, check=True)
        screens = record("scribengin run flow.yaml --once", folder)
    write(HERE / "live.svg", middle(screens))
    write(HERE / "run.svg", screens[-1])


def record(command: str, folder: Path) -> list[str]:
    """The screens that the command shows, some a second, with their colours; the last one is its end."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    shell = ["env", f"PATH={path}", "TERM=xterm-256color", "PS1=$ ", "bash", "--norc", "--noprofile"]
    tmux("-f", "/dev/null", "new-session", "-d", "-x", str(WIDTH), "-y", str(HEIGHT), "-c", str(folder), *shell)
    screens: list[str] = []
    try:
        tmux("send-keys", f"clear; {command}; echo ended", "Enter")
        while not re.search(r"^\S*ended\s*$", plain(screens[-1]) if screens else "", re.MULTILINE):
            time.sleep(0.4)
            screens.append(tmux("capture-pane", "-e", "-p"))
    finally:
        tmux("kill-server")
    return screens


def middle(screens: list[str]) -> str:
    """The screen on which the Queries are, together, nearest to half of their way."""

    def distance(screen: str) -> float:
        shares = [int(share) for share in _SHARE.findall(plain(screen))]
        return abs(sum(shares) / len(shares) - 50) if len(shares) > 1 else 100

    return min(screens, key=distance)


def write(path: Path, screen: str) -> None:
    """As an SVG that loads nothing from anywhere."""
    lines = screen.rstrip().splitlines()
    while lines and plain(lines[-1]).strip() in ("", "$", "ended"):
        lines.pop()
    console = Console(record=True, width=WIDTH, file=open(os.devnull, "w"), force_terminal=True)  # noqa: SIM115, PTH123
    console.print(Text("$ ", style="dim") + Text("scribengin run flow.yaml --once", style="bold"))
    console.print(Text.from_ansi("\n".join(lines)), soft_wrap=False)
    svg = console.export_svg(title="scribengin", unique_id=path.stem)
    path.write_text(re.sub(r"\s*@font-face \{.*?\}", "", svg, flags=re.DOTALL))


def plain(screen: str) -> str:
    """Without colours."""
    return re.sub(r"\x1b\[[0-9;]*m", "", screen)


def tmux(*arguments: str) -> str:
    """One call, on a server of our own."""
    return subprocess.run(["tmux", "-L", _SOCKET, *arguments], check=True, capture_output=True, text=True).stdout


if __name__ == "__main__":
    main()
