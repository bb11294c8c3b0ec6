"""The process of `crash_after`: runs a twin over the available input. `python -m scribengin.flow_tests.child TWIN CODE STATE FILE NOW`."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path

from scribengin.connectors import catalog
from scribengin.core.errors import InputError, ScribenginError
from scribengin.flow_tests.play import prepare_at
from scribengin.flow_tests.session import start_briefly
from scribengin.local.contract import RunSettings
from scribengin.local.drive import open_run
from scribengin.spark.user_code import pack
from scribengin.spec.parse import parse_flow
from scribengin.state.lease import take_lease


def main(twin: Path, code: Path, state: Path, file: Path, now: datetime | None) -> int:
    """Return the exit status: 0 if it finished, 1 if a query failed."""
    parsed = parse_flow(
        twin.read_text(encoding="utf-8"),
        str(twin),
        folder=twin.parent,
        code=code,
        environment=os.environ,
        source_types=catalog.source_types(),
        sink_types=catalog.sink_types(),
    )
    if parsed.flow is None:
        raise InputError(parsed.problems)
    prepared = prepare_at(file, parsed.flow, parsed.problems, state, now)
    spark = start_briefly(twin.parent / "dies")
    with ExitStack() as stack:
        leases = {tier.plan.tier: stack.enter_context(take_lease(tier.folder)) for tier in prepared.tiers}
        packed = pack(prepared.plan.flow.code_folder, prepared.root)
        run = open_run(stack, spark, prepared, packed, leases, RunSettings(once=True), lambda _: True)
        run.start()
        run.join()
        for problem in run.problems():
            print(problem, file=sys.stderr)
        return int(run.failed)


if __name__ == "__main__":
    try:
        described, steps, folder, flow = map(Path, sys.argv[1:5])
        sys.exit(main(described, steps, folder, flow, datetime.fromisoformat(sys.argv[5]) if sys.argv[5] else None))
    except ScribenginError as error:
        sys.exit(f"{error.message}; {error.remedy}")
