"""Generates docs/flow-file.md and docs/problems.md from declarations. A test fails if they are outdated."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.pages.flow_file_prose import ALERTS, EDITORS, HEAD, MAX_DEAD, PYTHON, SCHEMAS, SQL, TESTS, TIERS, TIME
from scribengin.core.units import show_bound, show_bytes_exactly, show_duration_exactly
from scribengin.spec import keys, tier_keys
from scribengin.spec.key import Section
from scribengin.spec.problems import CATALOG

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from scribengin.core.options import NodeType, Option
    from scribengin.spec.key import Key
    from scribengin.spec.problem_entry import ProblemEntry

_KINDS = {
    "path": "text",
    "raw": "text",
    "bytes": "size",
    "list": "list of texts",
    "words": "text or list of texts",
    "map": "mapping of texts",
    "columns": "list or mapping",
    "section": "mapping",
}
_HEAD = ("key", "value", "meaning", "default", "example")
_KEY_KINDS = {
    "raws": "text or list of texts",
    "expression": "SQL",
    "nodes": "mapping",
    "inputs": "id or list",
    "bytes": "size",
    "float": "number",
    "secrets": "mapping of texts",
    "settings": "mapping of texts and numbers",
    "bound": "percentage or number",
    "labels": "mapping of texts",
    "sections": "list of mappings",
    "words": "list of texts",
    "own": "list or mapping",
    "group": "`group` or `group.member`",
}


def flow_file_page(source_types: Mapping[str, NodeType], sink_types: Mapping[str, NodeType]) -> str:
    """The text of docs/flow-file.md."""
    parts = [HEAD, _top(), _ends("Sources", keys.SOURCE, source_types), _steps(), _ends("Sinks", keys.SINK, sink_types)]
    marks = _part("### Watermarks", keys.WATERMARK)
    return "\n".join([*parts, _tiers(), _alerts(), _tests(), SQL, SCHEMAS, TIME, marks, PYTHON, EDITORS])


def problems_page(more: Iterable[ProblemEntry] = ()) -> str:
    """The text of docs/problems.md: the problem codes of this package and those of other packages (`more`), sorted by code."""
    entries = sorted((*CATALOG, *more), key=lambda entry: entry.code)
    lines = [
        "# Error codes",
        "",
        "Every error and warning ends with a code in brackets. The codes are stable. `scribengin explain CODE` prints an entry on the",
        "terminal. Problems of a flow file name file, line and column; their examples are taken out of a flow over `orders`. Errors must",
        "be corrected before a flow runs; warnings do not stop it. Entries without an example need a state, a server, a machine or a",
        "command line.",
        "",
        *(f"- [{entry.code}](#{entry.code.removesuffix('*')}): {_sentence(entry.title)}" for entry in entries),
        "",
    ]
    for entry in entries:
        lines += _entry(entry)
    return "\n".join(lines)


def _entry(entry: ProblemEntry) -> Iterator[str]:
    yield f"## {entry.code}"
    yield ""
    yield f"**{entry.title}**{' (a warning)' if entry.severity == 'warning' else ''}. {entry.meaning} {entry.remedy}"
    yield ""
    for called, text in (("Wrong:", entry.example), ("Right:", entry.right)):
        if text:
            yield from ([called, ""] if entry.fix is not None else [])
            yield from ("```yaml", entry.fragment(text), "```", "")


def _sentence(title: str) -> str:
    return title[0].lower() + title[1:] if not title[1:2].isupper() else title


def _top() -> str:
    return (
        _part("## The file", keys.FLOW)
        + "\n"
        + _part("### Defaults", keys.DEFAULTS)
        + "\n"
        + _table(_HEAD, [_key_row(key, "retain.") for key in keys.RETAIN.keys])
        + "\n"
        + MAX_DEAD
        + "\n"
        + _table(_HEAD, [_key_row(key, "max_dead.") for key in keys.MAX_DEAD.keys])
    )


def _ends(title: str, section: Section, types: Mapping[str, NodeType]) -> str:
    parts = [_part(f"## {title}", section)]
    for declared in sorted(types.values(), key=lambda declared: declared.type):
        rows = [row for option in declared.options for row in (_option_row(option), *_key_rows(option))]
        table = _table(("option", "value", "meaning", "default", "example"), rows)
        parts.append(f"### `type: {declared.type}` ({declared.role})\n\n{declared.doc}\n\n{table}")
    return "\n".join(parts)


def _steps() -> str:
    operations = {key.name for key in keys.OPERATIONS}
    common = Section("step", keys.STEP.doc, tuple(key for key in keys.STEP.keys if key.name not in operations))
    parts = [_part("## Steps", common)]
    for key in keys.OPERATIONS:
        parts.append(f"### `{key.name}`\n\n{_capital(key.doc)}.\n\n```yaml\n{_step_example(key)}\n```\n")
        for section, title in _sections(key.section, key.name):
            parts.append(_table(_HEAD, [_key_row(inner, title) for inner in section.keys]))
    return "\n".join(parts)


def _tiers() -> str:
    parts = [TIERS]
    for title, section in (("Tiers", tier_keys.TIER), ("Edges", tier_keys.EDGE), ("Groups", tier_keys.GROUP)):
        parts.append(_part(f"### {title}", section))
        for inner in dict.fromkeys(key.section for key in section.keys if key.section):
            homes = [key.name for key in section.keys if key.section is inner]
            rows = [_key_row(one, f"{homes[0]}." if len(homes) == 1 else "") for one in inner.keys]
            parts.append(f"{', '.join(f'`{name}`' for name in homes)}: {inner.doc}\n\n{_table(_HEAD, rows)}")
    return "\n".join(parts)


def _alerts() -> str:
    return "\n".join([ALERTS, _table(_HEAD, [_key_row(key) for key in keys.ALERT.keys])])


def _tests() -> str:
    rows = [_key_row(key) for key in keys.TEST.keys]
    parts = [TESTS, _table(_HEAD, rows)]
    for section in keys.SECTIONS[1:]:
        inner = [_key_row(key) for key in section.keys]
        parts.append(f"`{section.called}`: {section.doc}\n\n{_table(_HEAD, inner)}")
    return "\n".join(parts)


def _sections(section: Section | None, prefix: str) -> Iterator[tuple[Section, str]]:
    """A section and the sections inside it, each with the dotted prefix of its keys."""
    if section is None:
        return
    yield section, f"{prefix}."
    for key in section.keys:
        yield from _sections(key.section, f"{prefix}.{key.name}")


def _step_example(key: Key) -> str:
    from_ = {"join": "[orders, payments]", "merge": "[orders, refunds]"}.get(key.name, "orders")
    return f"steps:\n  s: {{from: {from_}, {key.name}: {key.example}}}"


def _part(title: str, section: Section) -> str:
    rows = [_key_row(key) for key in section.keys]
    return f"{title}\n\n{section.doc}\n\n{_table(_HEAD, rows)}"


def _key_row(key: Key, prefix: str = "") -> tuple[str, ...]:
    value = ", ".join(f"`{choice}`" for choice in key.choices) or _KEY_KINDS.get(key.kind, key.kind)
    value = f"int or {value}" if key.kind == "int_or_word" else value
    value += " or section" * (key.kind == "word_or_section" or (key.kind in ("duration", "watermark", "bound") and key.section is not None))
    example = "" if key.kind in ("section", "nodes") else f"`{key.example}`"
    return f"`{prefix}{key.name}`", value, key.doc, "must be given" if key.required else _default(key.default), example


def _option_row(option: Option) -> tuple[str, ...]:
    value = ", ".join(f"`{choice}`" for choice in option.choices) or _KINDS.get(option.kind, option.kind)
    bounds = [f"at least {show_bound(option.kind, option.low)}"] if option.low is not None else []
    bounds += [f"at most {show_bound(option.kind, option.high)}"] if option.high is not None else []
    formats = f" (only format {', '.join(option.formats)})" if option.formats else ""
    default = "must be given" if option.required else _default(_shown(option))
    return f"`{option.name}`", ", ".join([value, *bounds]), option.doc + formats, default, f"`{option.example}`" if option.example else ""


def _key_rows(option: Option) -> Iterator[tuple[str, ...]]:
    """The table rows of a section's own keys."""
    for key in option.keys:
        name, *rest = _option_row(key)
        yield f"`{option.name}.{name.strip('`')}`", *rest


def _shown(option: Option) -> str:
    if option.default is None or option.default == ():
        return ""
    match option.kind:
        case "duration":
            return f"`{show_duration_exactly(option.default)}`"
        case "bytes":
            return f"`{show_bytes_exactly(option.default)}`"
        case "bool":
            return f"`{str(option.default).lower()}`"
        case _:
            return f"`{option.default}`" if str(option.default).strip() else "an empty text"


def _default(text: str) -> str:
    plain = text and not text.startswith("`") and " " not in text
    return f"`{text}`" if plain else text


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]
