"""Writes the generated pages of this folder: `python docs/generate.py`. A test fails when they are old."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from harness.pages.cli import cli_page
from harness.pages.flow_file import flow_file_page, problems_page
from harness.pages.metrics import metrics_page
from harness.pages.openapi import openapi_text
from harness.pages.registry import registry_page
from scribengin.cli.code_catalog import CATALOG as MET
from scribengin.cli.code_catalog.reasons import REASONS
from scribengin.connectors.catalog import sink_types, source_types
from scribengin.plan.problem_catalog import CATALOG

COOKBOOK = Path(__file__).parents[1] / "examples" / "cookbook"


def cookbook_page() -> str:
    """The flows of examples/cookbook, each under the task that its first comment begins with, in the order of `flows.txt`."""
    parts = [(COOKBOOK / "README.md").read_text(encoding="utf-8").strip()]
    for name in (COOKBOOK / "flows.txt").read_text(encoding="utf-8").split():
        comment, flow = (COOKBOOK / name / "flow.yaml").read_text(encoding="utf-8").split("\n", 1)
        about = comment.removeprefix("# ")
        task = re.split("[:,;]", about)[0]
        parts += [f"## {task}", f"{about} [The file](../examples/cookbook/{name}/flow.yaml).", f"```yaml\n{flow}```"]
        for code in sorted((COOKBOOK / name).glob("*.py")):
            parts.append(f"```python\n# {code.name}\n{code.read_text(encoding='utf-8')}```")
    return "\n\n".join(parts) + "\n"


def reasons_part() -> str:
    """The reasons of dead letters, behind the codes."""
    lines = [
        "## Reasons of dead letters",
        "",
        "`dead-letter list`, `dead-letter show` and the filter `--reason` name why a record could not be handled.",
        "`scribengin explain REASON` prints an entry on the terminal. [Dead letters](dead-letters.md) has the commands.",
        "",
        *(f"- [{each.name}](#reason-{each.name}): {each.title[0].lower() + each.title[1:]}" for each in REASONS),
    ]
    for each in REASONS:
        lines += ["", f"### Reason: {each.name}", "", f"**{each.title}**. {each.meaning} {each.remedy}", "", "```", each.example, "```"]
    return "\n".join(lines) + "\n"


def glossary_page() -> str:
    """The terms of glossary.toml with their definitions, and the words that texts do not use."""
    glossary = tomllib.loads(Path(__file__).with_name("glossary.toml").read_text(encoding="utf-8"))
    lines = [
        "# Glossary",
        "",
        "This page defines the terms of Scribengin, and gives those of other systems. Texts of the program and these pages use one term",
        "for one thing.",
        "",
        "## Terms",
    ]
    for term in glossary["term"]:
        lines += ["", f"### {term['name']}", "", term["means"], "", f"- Elsewhere: {term['elsewhere']}."]
        if "not" in term:
            lines.append(f"- Not used: {', '.join(f'`{word}`' for word in term['not'])}.")
    lines += [
        "",
        "## Words not used",
        "",
        "A test holds help texts, messages and pages to this list, which [glossary.toml](glossary.toml) contains as patterns.",
        "",
        "| not | but |",
        "| --- | --- |",
        *(f"| `{rule['words']}` | {rule['instead']} |" for rule in glossary["rule"]),
    ]
    return "\n".join(lines) + "\n"


def pages() -> dict[str, str]:
    """File name → text, of every generated page."""
    return {
        "flow-file.md": flow_file_page(source_types(), sink_types()),
        "problems.md": problems_page((*CATALOG, *MET)) + reasons_part(),
        "registry.md": registry_page(),
        "openapi.json": openapi_text(),
        "metrics.md": metrics_page(),
        "cli.md": cli_page(),
        "cookbook.md": cookbook_page(),
        "glossary.md": glossary_page(),
    }


if __name__ == "__main__":
    for name, text in pages().items():
        Path(__file__).with_name(name).write_text(text, encoding="utf-8")
