"""Writes the browser modules of the console from the packages of `.ci/console/package-lock.json`: `make console-vendor`.

The modules are checked in, so that neither an install nor a browser fetches anything. `--check` compares them with the packages instead,
`--lock` first writes the lock file anew from `package.json`. All of it needs npm, and a registry.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ROOT / ".ci" / "console"
LOCK = "package-lock.json"
VENDOR = ROOT / "src" / "scribengin" / "api" / "console" / "vendor"
TESTS = ROOT / "tests" / "console"
VERSIONS, LICENSES = "versions.json", "LICENSES.txt"
_ENDS_WITHIN_S = 300.0
_SOURCE_MAP = re.compile(r"^(?://# sourceMappingURL=\S*|/\*# sourceMappingURL=.*?\*/)$\n?", re.MULTILINE)
_LEGAL = re.compile(r"^/\*! For license information please see \S+ \*/$\n?", re.MULTILINE)
"""names a file of the package; the text is in LICENSES.txt"""
_BARE = re.compile(r"""(\bfrom\s*|\bimport\s*)(["'])(@?\w[\w@/.-]*)\2""")


@dataclass(frozen=True)
class Module:
    """A file to write: its name, the package and file that it is from, a line to add, and the packages that are bundled in it."""

    name: str
    package: str
    source: str
    last_line: str = ""
    bundles: tuple[str, ...] = ()


SHIPPED = (
    Module("preact.js", "preact", "dist/preact.mjs"),
    Module("hooks.js", "preact", "hooks/dist/hooks.mjs"),
    Module("htm.js", "htm", "dist/htm.mjs"),
    Module("dagre.js", "@dagrejs/dagre", "dist/dagre.esm.js", bundles=("@dagrejs/graphlib",)),
    # the package has an ES module too, but it is not minified: 145 kB instead of 51 kB
    Module("uplot.js", "uplot", "dist/uPlot.iife.min.js", "export default uPlot;"),
    Module("uplot.css", "uplot", "dist/uPlot.min.css"),
)
TESTED = (Module("axe.min.js", "axe-core", "axe.min.js"),)
SPECIFIERS = {"preact": "./preact.js", "preact/hooks": "./hooks.js"}
"""what the packages import → the file here"""


def main() -> int:
    """Write the files, or compare them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="compare the files with the packages, and write nothing")
    parser.add_argument("--lock", action="store_true", help="first write package-lock.json from package.json")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="scribengin-console-") as copy:
        folder = Path(copy)
        for name in ("package.json", LOCK, ".npmrc"):
            if (PACKAGES / name).exists():
                shutil.copy(PACKAGES / name, folder)
        if asked.lock:
            _npm(folder, "install", "--package-lock-only")
            (PACKAGES / LOCK).write_text(without_addresses((folder / LOCK).read_text()))
            shutil.copy(PACKAGES / LOCK, folder)
        _npm(folder, "ci")
        files = vendored(folder / "node_modules", VENDOR, SHIPPED) | vendored(folder / "node_modules", TESTS, TESTED)
    if asked.check:
        wrong = [str(path.relative_to(ROOT)) for path, content in files.items() if not path.exists() or path.read_bytes() != content]
        wrong += [str(path.relative_to(ROOT)) for path in VENDOR.iterdir() if path not in files]
        if wrong:
            raise SystemExit(f"console-vendor: not as in the packages: {', '.join(sorted(wrong))}; to write them, run: make console-vendor")
        print(f"console-vendor: {len(files)} files are as in the packages")
        return 0
    for path, content in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        print(f"{path.relative_to(ROOT)}: {len(content)} bytes")
    return 0


def vendored(packages: Path, folder: Path, modules: tuple[Module, ...]) -> dict[Path, bytes]:
    """The files of a folder, with their versions and licenses. `packages`: the folder node_modules."""
    files, versions = {}, {}
    for module in modules:
        described = json.loads((packages / module.package / "package.json").read_text())
        text = (packages / module.package / module.source).read_text(encoding="utf-8")
        content = adapted(text, module.last_line).encode()
        files[folder / module.name] = content
        versions[module.name] = {
            "package": module.package,
            "version": described["version"],
            "sha256": hashlib.sha256(content).hexdigest(),
        }
    files[folder / VERSIONS] = (json.dumps(versions, indent=2) + "\n").encode()
    files[folder / LICENSES] = licenses(packages, modules).encode()
    return files


def adapted(text: str, last_line: str = "") -> str:
    """A module as a browser can load it from its folder: with relative imports, and without the comment that names a source map."""
    text = _LEGAL.sub("", _SOURCE_MAP.sub("", text))
    text = _BARE.sub(lambda found: f"{found[1]}{found[2]}{_specifier(found[3])}{found[2]}", text)
    return f"{text.rstrip()}\n{last_line}\n" if last_line else f"{text.rstrip()}\n"


def licenses(packages: Path, modules: tuple[Module, ...]) -> str:
    """The license texts of the packages, each below a line such as `preact 11.2.0 (MIT): preact.js, hooks.js`."""
    used: dict[str, list[str]] = {}
    for module in modules:
        for package in (module.package, *module.bundles):
            used.setdefault(package, []).append(module.name)
    parts = ["Licenses of the third-party files in this folder. Written by: make console-vendor"]
    for package, names in used.items():
        described = json.loads((packages / package / "package.json").read_text())
        head = f"{package} {described['version']} ({described['license']}): {', '.join(names)}"
        texts = [path.read_text(encoding="utf-8").strip("\n") for path in sorted((packages / package).glob("LICENSE*"))]
        if not texts:
            raise SystemExit(f"console-vendor: {package} {described['version']} has no LICENSE file")
        parts.append("\n\n".join((f"{'=' * len(head)}\n{head}\n{'=' * len(head)}", *texts)))
    return "\n\n\n".join(parts) + "\n"


def without_addresses(lock: str) -> str:
    """A lock file without addresses of registries, and of people who ask for money."""
    content = json.loads(lock)
    for package in content["packages"].values():
        for name in ("resolved", "funding"):
            package.pop(name, None)
    return json.dumps(content, indent=2) + "\n"


def _specifier(name: str) -> str:
    if name not in SPECIFIERS:
        raise SystemExit(f"console-vendor: a module imports {name}, which is not among the files; see SPECIFIERS in .ci/console_vendor.py")
    return SPECIFIERS[name]


def _npm(folder: Path, *words: str) -> None:
    program = shutil.which("npm")
    if program is None:
        raise SystemExit("console-vendor: npm is not on the PATH; install Node.js 20 or newer")
    ended = subprocess.run([program, *words], cwd=folder, capture_output=True, text=True, check=False, timeout=_ENDS_WITHIN_S)
    if ended.returncode:
        output = (ended.stderr or ended.stdout)[-2000:]
        raise SystemExit(f"console-vendor: npm {' '.join(words)} ended with {ended.returncode}: {output}")


if __name__ == "__main__":
    sys.exit(main())
