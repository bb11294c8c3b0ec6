"""What a stopped run says of a reset, done as a person who answers yes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from scribengin.cli import confirm
from scribengin.cli.main import main
from scribengin.connectors.keyed.sink import KeyedSender
from scribengin.core.errors import ScribenginError
from scribengin.local.prepare import prepare
from scribengin.state.decisions import Decisions
from tests.plugins.remedies import mentions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from scribengin.connectors.keyed.contract import KeyedRows
    from tests.conftest import FlowFolder


def with_values(flow: str, values: Mapping[str, str]) -> str:
    """The flow with each name of `values` replaced by its value."""
    for name, value in values.items():
        flow = flow.replace(name, value)
    return flow


def fails_to_decide(folder: FlowFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that takes rows from its sources, and ends before they are committed."""

    def fails(*_args: object, **_named: object) -> None:
        raise OSError("it is full")

    with monkeypatch.context() as patch:
        patch.setattr(Decisions, "decide", fails)
        assert folder.run().state == "failed"


def stopped_by(folder: FlowFolder, code: str) -> str:
    """The remedy of a run that a problem of this code stops."""
    try:
        [problem] = folder.run().problems
    except ScribenginError as error:
        found, remedy = error.code, prepare(folder.path / "flow.yaml", state=None).named(error.remedy)
    else:
        found, remedy = problem.code, problem.remedy
    assert found == code, remedy
    return remedy


def stopped_as_its_place_goes(folder: FlowFolder, code: str, monkeypatch: pytest.MonkeyPatch, drop: Callable[[], object]) -> str:
    """The same, of a run whose sink's place is dropped each time when rows are about to be sent there."""
    send = KeyedSender.send

    def sends(sending: KeyedSender, rows: Iterable[KeyedRows]) -> None:
        drop()
        send(sending, rows)

    with monkeypatch.context() as patch:
        patch.setattr(KeyedSender, "send", sends)
        return stopped_by(folder, code)


def resets_and_runs(folder: FlowFolder, remedy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Does the reset that the remedy names, after which the flow runs."""
    monkeypatch.setattr(confirm, "_asks", lambda _: True)
    monkeypatch.setattr("click.termui.visible_prompt_func", lambda _prompt: "y")
    [mention] = [each for each in mentions(remedy) if each.words[0] == "reset"]
    with pytest.raises(SystemExit) as ended:
        main(list(mention.words))
    assert ended.value.code == 0
    result = folder.run()
    assert (result.state, result.violations) == ("finished", ()), result.problems
