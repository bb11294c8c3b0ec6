"""Commands that take one flow by its name, or several by `-l LABEL=VALUE`. With labels the command runs once for each flow."""

from __future__ import annotations

from dataclasses import replace
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from scribengin.cli.answer import AnsweringCommand, CommandAnswer, problems_of
from scribengin.cli.flow_argument import as_called
from scribengin.cli.value_options import NAME_ONE, chosen, labels_option
from scribengin.core.errors import Exit, ScribenginError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from scribengin.cli.plane_option import Masters

_SAID = ("-l", "--label")
NO_FLOW = "no flow is submitted; submit one: scribengin apply FILE"


class FlowCommand(AnsweringCommand):
    """A command whose first argument is a flow. With `-l` the argument is omitted."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """With `-l`, insert an empty first argument, which means the flows with these labels."""
        labelled = any(word in _SAID or word.startswith("--label=") or (word.startswith("-l") and "=" in word) for word in args)
        return super().parse_args(ctx, ["", *args] if labelled else args)

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """Returns usage pieces such as `[OPTIONS] (NAME | -l NAME=VALUE) VERSION`."""
        options, *arguments = super().collect_usage_pieces(ctx)
        may_lack = any(isinstance(each, click.Argument) and not each.required for each in self.params[:1])
        first = arguments[0]  # a metavar may itself end in a bracket: NAME[.TIER]
        either = f"{first[1:-1] if first.startswith('[') else first} | -l NAME=VALUE"
        return [options, f"[{either}]" if may_lack else f"({either})", *arguments[1:]]


def each_flow(argument: str, *, all_without: bool = False) -> Callable[[Callable[..., CommandAnswer]], Callable[..., CommandAnswer]]:
    """Decorate the function of a `FlowCommand`, below `masters_option`, so that it runs for a named flow or for all flows with labels.

    With labels it runs once for each flow, in turn; an error of one flow is reported and does not stop the others. With neither a name nor
    labels (such as an unset shell variable) it raises UsageError, unless `all_without`.

    Args:
        argument: the name of the function's parameter that takes the flow
        all_without: with neither a name nor labels, run for all flows
    """

    def decorate(function: Callable[..., CommandAnswer]) -> Callable[..., CommandAnswer]:
        @labels_option
        @wraps(function)
        def for_each(*, labels: Mapping[str, str], masters: Masters, **more: Any) -> CommandAnswer:
            if not labels and more[argument]:
                return function(masters=masters, **more)
            if not labels and not all_without:
                raise click.UsageError(NAME_ONE)
            with masters.reader() as plane:
                flows = chosen(plane, (), labels) if labels else tuple(row.flow for row in plane.flows())
            if not flows:
                return CommandAnswer([], show=lambda: click.echo(NO_FLOW))
            answers = {}
            for flow in flows:
                try:
                    answers[flow] = function(masters=masters, **{**more, argument: flow})
                except ScribenginError as error:
                    called = {**more, argument: flow}
                    problems = [replace(each, remedy=as_called(each.remedy, called)) for each in problems_of(error)]
                    answers[flow] = CommandAnswer(problems=problems, exit=error.exit)
            return together(answers)

        return for_each

    return decorate


def together(answers: Mapping[str, CommandAnswer]) -> CommandAnswer:
    """Combine the answers of several flows: the result is a list of objects with `flow`, `ok`, `result` and `problems`. For people each
    answer is printed under its flow's name."""

    def show() -> None:
        for flow, answer in answers.items():
            click.echo(f"--- {flow}")
            if answer.show is not None:
                answer.show()

    found = [
        {"flow": flow, "ok": answer.exit is Exit.DONE, "result": answer.result, "problems": [each.as_json() for each in answer.problems]}
        for flow, answer in answers.items()
    ]
    problems = [replace(each, message=f"flow {flow}: {each.message}") for flow, answer in answers.items() for each in answer.problems]
    worst = next((answer.exit for answer in answers.values() if answer.exit is not Exit.DONE), Exit.DONE)
    return CommandAnswer(found, problems, worst, show)
