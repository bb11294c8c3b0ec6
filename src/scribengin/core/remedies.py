"""Commands in remedies. `FLOW` is a placeholder until the text reaches code that knows how the user names the flow.

No remedy confirms that something is destroyed: `reset` and similar commands list what is lost, and ask.
"""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_FLOW = "FLOW"
_PUT_BACK = "put the state folder back"
_COMMAND = re.compile(rf"(\bscribengin (?:reset|run|plan|audit|maintain|status|dead-letter [a-z]+|offsets [a-z]+)) {_FLOW}(?![\w.])")
"""the commands that take a flow file"""


def flow_command(command: str, *arguments: str) -> str:
    """A command about the flow.

    >>> flow_command("dead-letter show", "kept:0:2")
    'scribengin dead-letter show FLOW kept:0:2'
    """
    return " ".join(["scribengin", command, _FLOW, *(shlex.quote(argument) for argument in arguments)])


def start_over(*, outputs: bool = True) -> str:
    """The remedy to read everything again. With `outputs`, what the sinks wrote is removed too, so that nothing is duplicated."""
    return f"start over: {flow_command('reset', *['--outputs'] * outputs)}"


def add_to_outputs() -> str:
    """The remedy to keep what another lineage has written, and to write beside it."""
    return (
        f"keep the existing output and add to it, which duplicates rows that are read again: {flow_command('run', '--append-new-lineage')}"
    )


def put_state_back() -> str:
    """The remedy if outputs of a flow exist and its state does not; it loses and duplicates nothing."""
    return f"{_PUT_BACK} if it was moved or deleted, or name it with --state"


def put_state_back_over(remedy: str, empty: str) -> str:
    """A remedy in which the text of `put_state_back` is adapted: the folder `empty` is in the place of the state, which would otherwise be
    moved into it."""
    return remedy.replace(_PUT_BACK, f"remove {empty}, which holds no state, and {_PUT_BACK}")


def beside_flow(kind: str, name: str) -> str:
    """The remedy if a sink would write where the flow of that name has written. `kind` is the sink's word for its place:
    `folder`, `table`."""
    return f'{_another_place(kind)}; if this is the same flow under a new name, rename it back to "{name}"'


def beside_installation(kind: str, *, same_flow: bool = False) -> str:
    """The remedy if a sink would write where another installation has written.

    Args:
        kind: The sink's word for its place, see `beside_flow`.
        same_flow: True if it was a flow of the same name.
    """
    plane = "check whether a control plane runs this flow, and if so stop it there: scribengin list; or "
    return f"{plane * same_flow}{put_state_back()}; or {_another_place(kind)}; to {add_to_outputs()}"


def beside_sink(kind: str, sink: str) -> str:
    """The remedy if a sink would write where another sink of this installation and flow has written. `kind` as in `beside_flow`."""
    return f"{rename_back('sink', sink)}; or {_another_place(kind)}; to {add_to_outputs()}"


def rename_back(role: str, id_: str) -> str:
    """The remedy if a `source` or `sink` was renamed; it loses and duplicates nothing."""
    return f'rename the {role} back to "{id_}"'


def _another_place(kind: str) -> str:
    return f"give the sink another {kind}, or delete the existing one if it is not needed"


def write_beside(sink: str) -> str:
    """The remedy to keep what a sink wrote, and to compute everything again for another sink: nothing is lost."""
    return f'give sink "{sink}" another id and another place: it reads everything again, and the existing output is kept'


def for_flow(text: str, flow: str, *settings: str, of_run: Sequence[str] = ()) -> str:
    """The text with its commands as the user runs them.

    Args:
        text: A remedy, or another text with commands.
        flow: The flow file, or the name of a flow that was submitted.
        settings: Further arguments of each command, such as `--state` and its folder.
        of_run: Further arguments of `run`, such as `--once`.

    >>> for_flow(start_over(), "my flow.yaml", "--state", "/var/state")
    "start over: scribengin reset 'my flow.yaml' --state /var/state --outputs"
    >>> for_flow(flow_command("run", "--append-new-lineage"), "flow.yaml", of_run=["--once"])
    'scribengin run flow.yaml --once --append-new-lineage'
    >>> for_flow(flow_command("run", "--once"), "flow.yaml", of_run=["--once"])
    'scribengin run flow.yaml --once'
    """

    def named(found: re.Match[str]) -> str:
        more = of_run if found.group(1) == "scribengin run" else ()
        more = [each for each in more if not found.string.startswith(f" {each}", found.end())]
        return f"{found.group(1)} {shlex.join([flow, *settings, *more])}"

    return _COMMAND.sub(named, text)
