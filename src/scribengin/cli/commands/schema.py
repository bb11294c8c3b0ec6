"""`scribengin config schema`."""

from __future__ import annotations

import click

from scribengin.cli.answer import AnsweringCommand, CommandAnswer


@click.command(cls=AnsweringCommand)
def command() -> CommandAnswer:
    """Print the JSON Schema of flow files, for editors that complete and check YAML.

    \b
    Example:
      scribengin config schema > flow.schema.json
    and as the first line of a flow file:  # yaml-language-server: $schema=flow.schema.json
    """
    import json

    text = schema_text()
    return CommandAnswer(json.loads(text), show=lambda: click.echo(text, nl=False))


def schema_text() -> str:
    """The JSON Schema of flow files, including the options of all installed connectors."""
    import json

    from scribengin.connectors import catalog
    from scribengin.spec.json_schema import flow_schema

    return json.dumps(flow_schema(catalog.source_types(), catalog.sink_types()), indent=2, ensure_ascii=False) + "\n"
