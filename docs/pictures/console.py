"""Records the pictures of the console from `make demo-console` in a real browser: python docs/pictures/console.py. One has beside it what
`scribengin top` prints at that moment, in a terminal of its own."""

from __future__ import annotations

import base64
import os
import pty
import re
import signal
import subprocess
import sys
import tempfile
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING

from playwright.sync_api import expect, sync_playwright
from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

from harness.browser import require_browser

if TYPE_CHECKING:
    from playwright.sync_api import Browser

HERE = Path(__file__).parent
DEMO = HERE.parents[1] / "examples" / "console" / "demo.py"
WIDE, HIGH, SHOWN, COLUMNS = 1200, 480, 860, 112
"""the size of the console, its width in the picture, and the width of the terminal in characters"""
_ADDRESS = re.compile(r"Look around: (http\S+?)\.? ")
_PAGE = """\
<style>
  body {{ margin: 0; }}
  div.both {{ padding: 14px; display: flex; gap: 14px; align-items: flex-start; background: #e4e8ee; width: max-content; }}
  img, .terminal {{ border-radius: 8px; box-shadow: 0 1px 6px #0005; }}
  .terminal {{ align-self: stretch; background: #0f1419; color: #d8dee6; padding: 12px 14px; white-space: pre; }}
  .terminal {{ font: 10.5px/1.45 "DejaVu Sans Mono", monospace; }}
</style>
<div class="both"><img src="data:image/png;base64,{picture}" width="{wide}"><div class="terminal">{text}</div></div>"""


def main() -> None:
    """Bring the demo up, take the pictures, and end it."""
    with tempfile.TemporaryDirectory() as folder:
        demo = subprocess.Popen([sys.executable, "-u", str(DEMO), "--folder", folder], stdout=subprocess.PIPE, text=True)
        try:
            assert demo.stdout is not None
            address = next(found.group(1) for line in demo.stdout if (found := _ADDRESS.search(line)))
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(executable_path=require_browser())
                beside_each_other(browser, address)
                alone(browser, address, "#/", "console-fleet.png", ".fleet-row")
                alone(browser, address, "#/flows/full/node/scored", "console-flow.png", ".panel h3")
                browser.close()
        finally:
            demo.send_signal(signal.SIGINT)
            demo.wait()


def beside_each_other(browser: Browser, address: str) -> None:
    """The fleet, and `top` beside it."""
    page = browser.new_page(viewport={"width": WIDE, "height": HIGH}, color_scheme="light")
    page.goto(address)
    expect(page.locator(".fleet-row").nth(5)).to_be_visible()
    text, picture = printed("top", "--once", master=address), page.screenshot()
    page.close()
    page = browser.new_page(viewport={"width": 2 * WIDE, "height": 2 * HIGH})  # without the console's content security policy
    page.set_content(_PAGE.format(picture=base64.b64encode(picture).decode(), wide=SHOWN, text=text))
    page.locator(".both").screenshot(path=HERE / "console-terminal.png")
    page.close()


def alone(browser: Browser, address: str, part: str, name: str, there: str) -> None:
    """One page."""
    page = browser.new_page(viewport={"width": 1280, "height": 640}, color_scheme="light")
    page.goto(f"{address}/{part}")
    expect(page.locator(there).first).to_be_visible()
    expect(page.locator("[aria-busy]")).to_have_count(0)
    page.screenshot(path=HERE / name)
    page.close()


def printed(*words: str, master: str) -> str:
    """What a command prints in a terminal, as HTML with its colours."""
    ours, theirs = pty.openpty()
    environment = os.environ | {"SCRIBENGIN_MASTER": master, "COLUMNS": str(COLUMNS), "LINES": "40", "TERM": "xterm-256color"}
    command = subprocess.Popen([sys.executable, "-m", "scribengin.cli", *words], stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    said = b""
    try:
        while piece := os.read(ours, 65536):
            said += piece
    except OSError:  # Linux reports the end of a terminal like this
        pass
    os.close(ours)
    command.wait()
    console = Console(record=True, width=COLUMNS, file=StringIO())
    console.print(Text(f"$ scribengin {' '.join(words)}", style="bold"))
    console.print(Text.from_ansi(said.decode().replace("\r", "")))
    return console.export_html(theme=MONOKAI, inline_styles=True, code_format="{code}")


if __name__ == "__main__":
    main()
