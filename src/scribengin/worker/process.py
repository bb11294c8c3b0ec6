"""The worker as a process: `python -m scribengin.worker WORKER`. Everything else comes from its environment and the registry.

SCRIBENGIN_HOME   this host's folder: packages
SCRIBENGIN_REACHED_AT   an address of this host, for other workers of the tier; the loopback by default
SCRIBENGIN_TOKEN, SCRIBENGIN_CERTIFICATES   for fetching packages from masters
SCRIBENGIN_…      the connection settings of the registry: `registry.connection_settings`
"""

from __future__ import annotations

import os
import signal
import socket
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scribengin.control.home import Home
from scribengin.control.masters import TOKEN, addresses, certificates_of, leader
from scribengin.control.peers import read_remote, with_remote
from scribengin.control.workflows import Workflows
from scribengin.control.world import RunId
from scribengin.core.errors import Exit, Refused, ScribenginError
from scribengin.core.net import LOOPBACK, is_container_master
from scribengin.core.secret import Secret
from scribengin.launch.marks import VARIABLE
from scribengin.packages.fetch import FetchedPackages
from scribengin.packages.store import PackageStore
from scribengin.registry.connection_settings import LOGIN, ConnectionSettings
from scribengin.registry.contract import Damaged, shown
from scribengin.registry.lease import RegistryLease
from scribengin.registry.record_io import Stored, read_record
from scribengin.registry.records import is_helper, spec_of
from scribengin.registry.tree import DESIRED, LEASE, SPEC, WANTED
from scribengin.state.columns import ColumnsAcceptance
from scribengin.state.folder import StateFolder
from scribengin.state.places import located
from scribengin.watching.progress import ProgressBuilder
from scribengin.worker.attempt import HelperAttempt, TierAttempt
from scribengin.worker.log import Timeline, tell
from scribengin.worker.progress import Reporter
from scribengin.worker.registry_watch import DesiredState, LiveLimits, LiveTurns, OwnOrder
from scribengin.worker.service import WorkerService
from scribengin.worker.sharing import REACHED_AT
from scribengin.worker.status_page import Glance, serve_page
from scribengin.worker.tasks import Tasks
from scribengin.worker.tier_records import TierRecords

if TYPE_CHECKING:
    from collections.abc import MutableMapping, Sequence

    from scribengin.local.contract import RunView
    from scribengin.registry.contract import Registry
    from scribengin.registry.records import Spec

HOME, NODE, MASTER = "SCRIBENGIN_HOME", "SCRIBENGIN_NODE", "SCRIBENGIN_SPARK_MASTER"


def main(worker: str) -> Exit:
    """Run a worker until its tier no longer needs it. Raises Refused if the worker's name is not valid, or the tier has no desired state;
    and as `ConnectionSettings.open`."""
    id_ = RunId.parse(worker)
    if id_ is None:
        raise Refused(f'"{worker}" is not a valid name of a worker', remedy="write FLOW.TIER-NUMBER", code="worker-unknown")
    timeline = Timeline()
    timeline.mark("loaded")
    with ExitStack() as stack:
        entrance, secrets = ConnectionSettings.of_environment(os.environ), take_secrets(os.environ)
        registry = entrance.open()
        stack.callback(registry.close)
        registry.sync()  # the order for this worker was written by another client; this client's server may be behind, and lack it
        version, spec = _read_spec(registry, id_)
        packages = _packages(registry, secrets.get(TOKEN))
        timeline.mark("connected")
        lease = RegistryLease(registry, LEASE(id_.flow, id_.tier).path, _about(id_))
        stack.callback(lease.close)
        wanted = DesiredState(registry, id_)
        stack.callback(wanted.close)
        builder = ProgressBuilder(id_.flow, id_.tier, id_.number, version)
        reporter = Reporter(builder, lambda: leader(registry), lambda: lease.claim, certificates=certificates_of(os.environ))
        stack.callback(reporter.close)
        limits = LiveLimits(registry, id_.flow)
        stack.callback(limits.close)
        turns = LiveTurns(registry)
        stack.callback(turns.close)
        glance = Glance(registry, id_, lease, version)
        folder = StateFolder(located(spec.state), id_.flow, id_.tier)
        records = TierRecords(registry, id_, lease, folder, socket.gethostname(), topology=glance.topology)
        stack.callback(records.close)
        records.start()

        def show(view: RunView) -> None:
            reporter.show(view)
            records.show(view)

        feeders = partial(_feeders, Workflows(registry), id_.flow)
        kind = HelperAttempt if is_helper(id_.tier) else TierAttempt
        # without the mark of a launcher, this process was not started by one of its own machine: it is in a container
        master = os.environ.get(MASTER, "") if VARIABLE not in os.environ else ""
        in_yarn = master == "yarn"
        word, host = partial(_word, registry, id_), os.environ.get(REACHED_AT) or (socket.gethostname() if in_yarn else LOOPBACK)
        here = Home(Path(os.environ[HOME]).absolute()).scratch
        attempt = kind(spec, id_, packages, lease, timeline, glance, show, limits, turns, feeders, word, host, here)
        stack.callback(attempt.close)
        tasks = Tasks(registry, id_, spec, packages, lease, attempt.session)
        loaded = [version]

        def reload(newer: int) -> bool:
            """True if this process can continue with that version, because its code and its resources are the same; the version is then
            loaded."""
            stored = read_record(registry, SPEC(id_.flow, str(newer)))
            tier = spec_of(stored.record, id_.tier) if isinstance(stored, Stored) else None
            if not isinstance(stored, Stored) or tier is None or not 0 < tier.process <= loaded[0] <= newer:
                return False
            attempt.take(stored.record)
            tasks.take(stored.record)
            loaded[0] = builder.version = newer
            return True

        def end(why: str) -> None:
            records.end()
            tell_end(worker, why)

        http = stack.enter_context(serve_page(glance.as_json))
        service = WorkerService(
            registry,
            id_,
            lease,
            wanted,
            version,
            attempt,
            attempt.warm,
            task=tasks,
            reload=reload,
            http=http,
            on_say=glance.hear,
            on_end=end,
        )
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: service.stop())
        if is_container_master(master):
            stack.callback(OwnOrder(registry, os.environ[NODE], worker, service.stop).close)
        if in_yarn:
            with suppress(ScribenginError):  # the attempt meets it too, and reports it
                attempt.session()  # YARN ends a driver that has had no session for some minutes
        return service.serve()


def tell_end(worker: str, why: str) -> None:
    """Write the last line of a worker's log before the supervisor's line. `why`: the reason of its end."""
    tell(f"{worker} ends, {why}")


def take_secrets(environment: MutableMapping[str, str]) -> dict[str, Secret]:
    """Remove the secrets from the environment that only the worker may have, and return them: Spark's JVM, and the flow's own code in its
    Python, inherit the environment."""
    return {name: Secret(environment.pop(name), f"${{{name}}}") for name in (LOGIN, TOKEN) if environment.get(name)}


def _packages(registry: Registry, token: Secret | None) -> FetchedPackages:
    """The packages of this host, and those of masters."""
    return FetchedPackages(
        PackageStore(Path(os.environ[HOME]) / "packages"),
        lambda: addresses(registry),
        token=token,
        certificates=certificates_of(os.environ),
    )


def _about(id_: RunId) -> dict[str, Any]:
    return {"run": id_.number, "pid": os.getpid(), "host": socket.gethostname()}


def _feeders(workflows: Workflows, flow: str) -> Sequence[str]:
    """The upstream flows, from the registry's present records."""
    return with_remote(workflows.of(flow), workflows, read_remote(workflows.registry)).feeders(flow)


def _word(registry: Registry, id_: RunId, spec: Spec) -> ColumnsAcceptance | None:
    """The agreement that sinks of this version continue with other columns; None if there is none. Raises Unreachable."""
    desired = read_record(registry, DESIRED(id_.flow))
    if not isinstance(desired, Stored) or not desired.record.accepts.get("at"):
        return None
    wanted = read_record(registry, SPEC(id_.flow, str(desired.record.version)))
    if not isinstance(wanted, Stored) or wanted.record != spec:
        return None  # the agreement is to another version
    return ColumnsAcceptance(desired.record.accepts["at"], desired.record.accepts.get("by", ""))


def _read_spec(registry: Registry, id_: RunId) -> tuple[int, Spec]:
    """(version, its Spec) in the tier's desired state."""
    wish = read_record(registry, WANTED(id_.flow, id_.tier))
    if not isinstance(wish, Stored):
        why = (
            f"{shown(wish.path)} {wish.why}"
            if isinstance(wish, Damaged)
            else f"tier {id_.flow}.{id_.tier} has no desired state, so no worker is needed"
        )
        raise Refused(why, remedy="apply the flow: scribengin apply FILE", code="worker-unknown")
    version = wish.record.version
    spec = read_record(registry, SPEC(id_.flow, str(version)))
    if not isinstance(spec, Stored):
        why = f"{shown(spec.path)} {spec.why}" if isinstance(spec, Damaged) else f"version {version} of {id_.flow} is not in the registry"
        raise Refused(why, remedy="apply it again", code="worker-unknown")
    return version, spec.record
