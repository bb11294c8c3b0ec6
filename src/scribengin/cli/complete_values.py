"""Shell completion of values: the flow files of a folder, and the nodes of a flow file. Uses no server and no Spark.

A file that cannot be read or is not a flow offers nothing: completion never fails.
"""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import click
    from click.shell_completion import CompletionItem

    Completer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]

_IN_YAML = re.compile(r"^(sources|sinks):", re.MULTILINE)
_FLOW = {".yaml": _IN_YAML, ".yml": _IN_YAML, ".py": re.compile(r"^\s*(from|import) scribengin\b", re.MULTILINE)}
_YAML = (".yaml", ".yml")
_MOST_FILES, _MOST_CHARACTERS = 200, 200_000
"""the maximum number of files of a folder that are read, and of characters of each"""


def flow_files(_context: click.Context, _parameter: click.Parameter, start: str) -> list[CompletionItem]:
    """Complete the flow files of the folder in `start`. If there are none, the shell completes file names."""
    from click.shell_completion import CompletionItem

    above, _, name = start.rpartition("/")
    above += "/" * ("/" in start)
    found = []
    with suppress(OSError):
        files = [file for file in sorted(Path(above or ".").expanduser().iterdir()) if file.name.startswith(name) and file.suffix in _FLOW]
        found = [f"{above}{file.name}" for file in files[:_MOST_FILES] if _FLOW[file.suffix].search(_text(file))]
    return [CompletionItem(file) for file in found] or [CompletionItem(start, type="file")]


def nodes(*sections: str) -> Completer:
    """Complete the ids in these sections of the command's flow file: `sources`, `steps`, `sinks` or `tiers`."""

    def complete(context: click.Context, _parameter: click.Parameter, start: str) -> list[CompletionItem]:
        # if the word to complete is the value of an option at the end, click leaves the arguments in `args`
        given = (context.params.get("flow"), *(context.params.get("flows") or ()), *context.args)
        file = next((str(word) for word in given if str(word).endswith(_YAML)), "")
        return _items(_ids(file, sections), start) if file else []

    return complete


def words(known: Callable[[], Iterable[str]]) -> Completer:
    """Complete the words that `known` returns. It is called for each completion."""
    return lambda _context, _parameter, start: _items(known(), start)


def _items(known: Iterable[str], start: str) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    return [CompletionItem(word) for word in known if word.startswith(start)]


def _ids(flow: str, sections: Iterable[str]) -> list[str]:
    import yaml

    with suppress(OSError, yaml.YAMLError):
        read: Any = yaml.load(_text(Path(flow).expanduser()), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        parts = [read.get(section) for section in sections] if isinstance(read, dict) else []
        return [str(id_) for part in parts if isinstance(part, dict) for id_ in part]
    return []


def _text(file: Path) -> str:
    with suppress(OSError), file.open(encoding="utf-8", errors="replace") as lines:
        return lines.read(_MOST_CHARACTERS)
    return ""
