"""A secret among a sink's options is seen nowhere: in no text of the sink, no error, no log, no receipt, and no file that it leaves."""

from __future__ import annotations

import logging
import pickle
from contextlib import contextmanager
from typing import TYPE_CHECKING

from scribengin.testing.conformance_sinks import LINEAGE, OWNER, batch_id
from scribengin.testing.sentences import must

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from scribengin.connectors.contract import StagingSink
    from scribengin.testing.conformance_sinks import SinkTrial


def check_secret(
    trial: SinkTrial, secret: str, *, folders: Sequence[Path], away: Callable[[], StagingSink] | None, logged: Sequence[str]
) -> None:
    """Look for it. `folders`: what the sink has written to; `away`: a sink with the secret whose place does not answer."""
    sink = trial.prepared()
    stream = sink.stream(batch_id(len(trial.decisions), 2), 0, "looked-at", trial.schema)
    for what, shown in (("the sink", sink), ("a pickled copy of it", pickle.loads(pickle.dumps(sink))), ("a stream", stream)):
        must(secret not in f"{shown} {shown!r}", f"a secret is not shown; it is in the text of {what}")
    stream.abort()
    audited = list(sink.audit(lineage=LINEAGE, decided=trial.decisions))
    must(secret not in repr(trial.decisions), "a secret is not shown; it is in a receipt")
    must(secret not in repr(audited), "a secret is not shown; it is in what an audit tells")
    must(secret not in repr(trial.found()), "a secret is not shown; readers see it")
    raised = [*trial.raised, *_raised_by(away)]
    told = next((error for error in raised if any(secret in text for text in _texts(error))), None)
    must(told is None, f"a secret is not shown; it is in a {type(told).__name__}, or in what that came of")
    for path in (path for folder in folders for path in sorted(folder.rglob("*")) if path.is_file()):
        must(secret.encode() not in path.read_bytes(), f"a secret is not shown; it is in the file {path.name}")
    must(not any(secret in line for line in logged), "a secret is not shown; it is in a log")


@contextmanager
def logs() -> Iterator[list[str]]:
    """What is logged meanwhile, with tracebacks."""
    lines: list[str] = []
    handler = _Keeping(lines)
    logging.getLogger().addHandler(handler)
    try:
        yield lines
    finally:
        logging.getLogger().removeHandler(handler)


class _Keeping(logging.Handler):
    def __init__(self, lines: list[str]) -> None:
        super().__init__()
        self._lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.append(self.format(record))


def _raised_by(away: Callable[[], StagingSink] | None) -> list[BaseException]:
    if away is None:
        return []
    try:
        away().prepare(owner=OWNER, lineage=LINEAGE)
    except Exception as error:
        return [error]
    raise AssertionError("the contract is broken: a sink whose place does not answer raises")


def _texts(error: BaseException | None) -> Iterator[str]:
    """Of the error and of all that it came of: a traceback shows them."""
    while error is not None:
        yield f"{error} {error!r} {getattr(error, 'remedy', '')}"
        error = error.__cause__ or error.__context__
