"""`scribengin completion SHELL`."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from scribengin.cli.answer import AnsweringCommand, CommandAnswer
from scribengin.cli.main import scribengin

_WHERE = {
    "bash": "~/.local/share/bash-completion/completions/scribengin",
    "zsh": "a folder of $fpath, as _scribengin",
    "fish": "~/.config/fish/completions/scribengin.fish",
}


@click.command(cls=AnsweringCommand)
@click.argument("shell", type=click.Choice(list(_WHERE)))
def command(shell: str) -> CommandAnswer:
    """Print the completion script of a shell.

    \b
    Examples:
      source <(scribengin completion bash)        for this session
      scribengin completion fish | source

    \b
    For every session write it to
      bash  ~/.local/share/bash-completion/completions/scribengin
      zsh   a folder of $fpath, as _scribengin
      fish  ~/.config/fish/completions/scribengin.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None
    script = kind(scribengin, {}, "scribengin", "_SCRIBENGIN_COMPLETE").source()
    return CommandAnswer({"shell": shell, "script": script, "where": _WHERE[shell]}, show=lambda: click.echo(script))
