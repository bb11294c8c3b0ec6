"""Pictures of every page, wide and narrow, light and dark. A picture is compared with its reference by where there is something on it, in
cells of 80 x 80 pixels: fonts and a pixel more or less change little, a page without style or content much. See `make console-pictures`.
"""

from __future__ import annotations

import base64
import html
import json
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import Page, Route, expect

from tests.api.conftest import Bench
from tests.console.full_scene import ADDRESSES, full_scene

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.console.scene import Scene

REFERENCES = Path(__file__).with_name("pictures.json")
WIDTHS = {1280: 800, 360: 740}
THEMES = ("light", "dark")
GROSS = 0.4
"""the distance of another picture. Measured: another font 0.08 at most, a pixel more 0.07, a page without its style 0.65 or more"""
SAMPLES = [
    {"at": 1_795_939_200 + 10 * nth, "step_s": 10, "rows_in_per_s": 40.0 + nth, "rows_out_per_s": 38.0, "dead_per_s": 0.1}
    | {"lag_rows": 100 * nth, "lag_bytes": None, "lag_s": 2.0 * nth, "batches": 1, "restarts": 0}
    for nth in range(30)
]
BACK_APART = 60
"""levels of grey between the backgrounds of two themes at least"""
PRINT = """async (data) => {
  const image = new Image();
  image.src = `data:image/png;base64,${data}`;
  await image.decode();
  const canvas = new OffscreenCanvas(image.width, image.height), pen = canvas.getContext("2d");
  pen.drawImage(image, 0, 0);
  const pixels = pen.getImageData(0, 0, image.width, image.height).data;
  const grey = (at) => Math.round(0.3 * pixels[at] + 0.59 * pixels[at + 1] + 0.11 * pixels[at + 2]);
  const often = new Array(256).fill(0);
  for (let at = 0; at < pixels.length; at += 4) often[grey(at)] += 1;
  const back = often.indexOf(Math.max(...often)), columns = Math.ceil(image.width / 80), rows = Math.ceil(image.height / 80);
  const inks = new Array(columns * rows).fill(0);
  for (let y = 0; y < image.height; y += 1) for (let x = 0; x < image.width; x += 1) {
    if (Math.abs(grey((y * image.width + x) * 4) - back) > 24) inks[Math.floor(y / 80) * columns + Math.floor(x / 80)] += 1;
  }
  const cell = (ink) => Math.min(255, Math.round(ink / 6400 * 512)).toString(16).padStart(2, "0");
  return {back, columns, cells: inks.map(cell).join("")};
}"""


@dataclass(frozen=True)
class Print:
    """What a picture is compared by: the grey of its background, and how much is in each cell."""

    back: int
    columns: int
    cells: str

    @property
    def inks(self) -> list[int]:
        """Of each cell, from 0 to 255."""
        return list(bytes.fromhex(self.cells))

    def distance(self, other: Print) -> float:
        """0: the same; 1: nothing in common, or another background."""
        if abs(self.back - other.back) > BACK_APART:
            return 1.0
        pairs = list(zip(self.inks, other.inks, strict=True))
        return sum(abs(one - two) for one, two in pairs) / max(1, sum(max(pair) for pair in pairs))

    def drawn(self) -> str:
        """As an SVG picture."""
        cells = "".join(
            f'<rect x="{nth % self.columns}" y="{nth // self.columns}" width="1" height="1" fill-opacity="{ink / 255:.2f}"/>'
            for nth, ink in enumerate(self.inks)
        )
        return f'<svg width="320" viewBox="0 0 {self.columns} {-(-len(self.inks) // self.columns)}" fill="#888">{cells}</svg>'


class Report:
    """The pictures in a folder, and a page that sets each beside its reference; nothing without a folder."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._rows: list[str] = []
        self._prints: dict[str, Any] = {}

    def add(self, name: str, picture: bytes, found: Print, reference: Print | None) -> None:
        """One picture."""
        if self._folder is None:
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        file = f"{name.replace('/ ', 'fleet ').strip('/').translate(str.maketrans('/:?= ', '-----'))}.png"
        (self._folder / file).write_bytes(picture)
        self._prints[name] = [found.back, found.columns, found.cells]
        far = "no reference" if reference is None else f"{found.distance(reference):.0%} differ"
        cells = [f'<img src="{html.escape(file)}" width="320">', found.drawn(), "" if reference is None else reference.drawn()]
        self._rows.append(f"<tr><th>{html.escape(name)}<br>{far}</th>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>")

    def close(self) -> None:
        """Write the page, and the references that these pictures would be."""
        if self._folder is not None and self._rows:
            head = "<!doctype html><meta charset=utf-8><title>pictures</title><table><tr><th>page<th>picture<th>cells<th>reference</tr>"
            (self._folder / "index.html").write_text(f"{head}{''.join(self._rows)}</table>", encoding="utf-8")
            (self._folder / "pictures.json").write_text(json.dumps(self._prints, indent=0) + "\n", encoding="utf-8")


@pytest.fixture(scope="module")
def report(request: pytest.FixtureRequest) -> Iterator[Report]:
    folder = request.config.getoption("--pictures")
    made = Report(Path(folder).absolute() if folder else None)
    yield made
    made.close()


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """The tests of this file share it: none changes anything."""
    with ExitStack() as stack:
        bench = Bench(tmp_path_factory.mktemp("bench"), stack)
        yield full_scene(bench, bench.master())


def taken(page: Page, decoder: Page, width: int, theme: str) -> tuple[bytes, Print]:
    page.emulate_media(color_scheme=theme, reduced_motion="reduce")  # type: ignore[arg-type]
    page.set_viewport_size({"width": width, "height": WIDTHS[width]})
    picture = page.screenshot(animations="disabled", caret="hide")
    return picture, Print(**decoder.evaluate(PRINT, base64.b64encode(picture).decode()))


def opened(page: Page, scene: Scene, pattern: str) -> None:
    def with_samples(route: Route) -> None:
        answer = route.fetch()
        route.fulfill(response=answer, json=answer.json() | {"at": SAMPLES[-1]["at"] + 10, "series": {"main": SAMPLES}})

    page.route("**/flows/*/metrics?*", with_samples)  # those of the master depend on how long it is there
    address, heading, _ = ADDRESSES[pattern]
    page.goto(f"{scene.url}/#{address}")
    expect(page.get_by_role("heading", level=1, name=heading)).to_be_visible()
    expect(page.locator("[aria-busy]")).to_have_count(0)


@pytest.mark.parametrize("pattern", ADDRESSES)
def test_each_page_looks_as_it_did(
    scene: Scene, page: Page, report: Report, accessibility_faults: Callable[[Page], list[str]], pattern: str
) -> None:
    known = {name: Print(*values) for name, values in json.loads(REFERENCES.read_text(encoding="utf-8")).items()}
    opened(page, scene, pattern)
    decoder = page.context.new_page()
    faults: list[str] = []
    for width in WIDTHS:
        found = {}
        for theme in THEMES:
            name = f"{pattern} {width} {theme}"
            picture, found[theme] = taken(page, decoder, width, theme)
            reference = known.get(name)
            report.add(name, picture, found[theme], reference)
            if reference is None:
                faults.append(f"{name}: no reference")
            elif (distance := found[theme].distance(reference)) > GROSS:
                faults.append(f"{name}: {distance:.2f} from its reference")
            if sum(map(bool, found[theme].inks)) < len(found[theme].inks) // 12:
                faults.append(f"{name}: nearly empty")
            if width == max(WIDTHS):
                faults += [f"{name}: {fault}" for fault in accessibility_faults(page) if fault.startswith("color-contrast")]
        if abs(found["light"].back - found["dark"].back) <= BACK_APART:
            faults.append(f"{pattern} {width}: light and dark look the same")
        if (wide := page.evaluate("document.documentElement.scrollWidth")) > width:
            faults.append(f"{pattern} {width}: is {wide} wide")
    assert faults == []


@pytest.mark.parametrize(
    ("change", "gross"),
    [
        ("document.body.style.fontFamily = 'serif'", False),
        ("document.body.style.margin = '1px 0 0 1px'", False),
        ("document.body.replaceChildren()", True),
        ("document.querySelectorAll('link[rel=stylesheet]').forEach((sheet) => sheet.remove())", True),
        ("document.documentElement.dataset.theme = 'dark'", True),
    ],
    ids=["font", "shift", "blank", "unstyled", "theme"],
)
@pytest.mark.parametrize("pattern", ["/", "/flows/:flow/dead", "/hosts"])
def test_only_gross_differences_are_found(scene: Scene, page: Page, pattern: str, change: str, *, gross: bool) -> None:
    opened(page, scene, pattern)
    decoder = page.context.new_page()
    before = taken(page, decoder, 1280, "light")[1]
    page.evaluate(change)
    distance = before.distance(taken(page, decoder, 1280, "light")[1])
    assert (distance > GROSS) == gross, distance
