"""Suggestions for an unknown command: the equivalent of a word from another tool, or a similar name. A destructive command is
not suggested for a similar name."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from scribengin.core.problems import nearest

if TYPE_CHECKING:
    from collections.abc import Iterable

DESTRUCTIVE = frozenset(
    {"cancel", "delete", "disable", "drain", "purge", "remove", "reset", "rewind", "rollback", "set", "skip", "stop", "unmap"}
)
"""commands that delete, end or set back something: they are not suggested for a similar name"""
_OURS = {
    **dict.fromkeys(("lint", "check", "verify"), "scribengin validate FILE"),
    **dict.fromkeys(("ps", "ls", "get", "flows"), "scribengin list"),
    **dict.fromkeys(("deploy", "submit", "create", "publish", "update"), "scribengin apply FILE"),
    **dict.fromkeys(("start", "unpause", "continue"), "scribengin resume NAME (a flow of the control plane), or: scribengin run FILE"),
    **dict.fromkeys(("restart", "reload"), "scribengin stop NAME --wait, then: scribengin resume NAME"),
    **dict.fromkeys(("execute", "exec"), "scribengin run FILE"),
    **dict.fromkeys(("suspend", "halt"), "scribengin pause NAME"),
    **dict.fromkeys(("log", "tail"), "scribengin logs NAME"),
    **dict.fromkeys(("inspect", "info", "desc"), "scribengin describe NAME"),
    **dict.fromkeys(("monitor", "watch", "dashboard"), "scribengin top"),
    **dict.fromkeys(("dlq", "deadletter", "deadletters", "dead-letters", "letters", "errors"), "scribengin dead-letter list FLOW"),
    **dict.fromkeys(("format", "prettier"), "scribengin fmt FILE"),
    **dict.fromkeys(("new", "scaffold", "quickstart"), "scribengin init FOLDER"),
    **dict.fromkeys(("build", "bundle", "pack"), "scribengin package create DIR"),
    **dict.fromkeys(("sample", "peek", "dry-run"), "scribengin preview FILE"),
    **dict.fromkeys(("serve", "daemon"), "scribengin server dev"),
    **dict.fromkeys(("rescale", "resize"), "scribengin scale NAME"),
    **dict.fromkeys(("lag", "progress"), "scribengin status FLOW"),
    **dict.fromkeys(("discover", "detect"), "scribengin infer FILE"),
    **dict.fromkeys(("reconcile", "proof"), "scribengin audit FLOW"),
    **dict.fromkeys(("env", "diagnose"), "scribengin doctor"),
    **dict.fromkeys(("why", "error", "errno"), "scribengin explain CODE"),
}
"""words of other tools, and the equivalent command here"""
_WHOLE = 400
"""the maximum number of characters of a sentence in the help; click's default is shorter"""


def no_command(word: str, known: Iterable[str], below: str = "") -> str:
    """The message about a command that does not exist. `below` is the group in which it was looked up.

    >>> no_command("valdate", ["validate", "reset"])
    'there is no command "valdate"; did you mean "validate"?'
    >>> no_command("restet", ["validate", "reset"])
    'there is no command "restet"; see: scribengin --help'
    """
    ours = "" if below else _OURS.get(word.lower(), "")
    near = nearest(word, known)
    said = (
        f'did you mean "{near}"?' if near is not None and near not in DESTRUCTIVE else f"see: scribengin {below} --help".replace("  ", " ")
    )
    said = f"type: {ours}" if ours else said
    return f'there is no command "{f"{below} {word}".strip()}"; ' + said


class GuessingGroup(click.Group):
    """A group of commands that suggests a command for an unknown name. A similar name is only suggested if it is not destructive."""

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, as click does. Raises UsageError with a suggestion if it does not exist."""
        name = str(args[0])
        if self.get_command(ctx, name) is None and not ctx.resilient_parsing and not name.startswith("-"):
            raise click.UsageError(no_command(name, self.list_commands(ctx), ctx.command_path.partition(" ")[2]), ctx)
        return super().resolve_command(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """The names of the commands, in the order in which they were added."""
        return list(self.commands)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write each command with its whole first sentence."""
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        rows = [(name, command.get_short_help_str(limit=_WHOLE)) for name, command in commands if command and not command.hidden]
        with formatter.section("Commands"):
            formatter.write_dl(rows)
