"""The worker as a process: `python -m scribengin.worker WORKER`, with all else from its environment and the registry.

SCRIBENGIN_REGISTRY         zk://HOST:PORT/path
SCRIBENGIN_REGISTRY_LOGIN   user:password, where the registry asks for a login
SCRIBENGIN_HOME             this host's folder: packages
"""

from __future__ import annotations

import os
import signal
import socket
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scribengin.control.world import RunId
from scribengin.core.errors import Exit, Refused
from scribengin.core.secret import Secret
from scribengin.packages.store import PackageStore
from scribengin.registry.access import Address, DigestLogin
from scribengin.registry.contract import Damaged, shown
from scribengin.registry.lease import Lease
from scribengin.registry.records import Stored, read_record
from scribengin.registry.tree import LEASE, SPEC, WANTED
from scribengin.registry.zookeeper import open_zookeeper
from scribengin.worker.attempt import TierAttempt
from scribengin.worker.limits import LiveLimits
from scribengin.worker.service import Service
from scribengin.worker.tasks import Tasks
from scribengin.worker.wanted import Wanted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scribengin.registry.contract import Registry
    from scribengin.registry.tree import Spec

REGISTRY, LOGIN, HOME = "SCRIBENGIN_REGISTRY", "SCRIBENGIN_REGISTRY_LOGIN", "SCRIBENGIN_HOME"


def open_registry(environment: Mapping[str, str]) -> Registry:
    """The registry that the environment names. Raises as `open_zookeeper`, Refused where it names none."""
    if REGISTRY not in environment:
        raise Refused(f"{REGISTRY} is not set", remedy="a launcher sets it; by hand: zk://HOST:PORT/path", code="registry-address")
    login = DigestLogin(Secret(environment[LOGIN], f"${{{LOGIN}}}")) if environment.get(LOGIN) else None
    return open_zookeeper(Address.parse(environment[REGISTRY]), login=login, insecure=login is None)


def main(worker: str) -> Exit:
    """Serve until it is wanted no more. Raises Refused for what is no worker, or one that nobody wants; as `open_registry`."""
    id_ = RunId.parse(worker)
    if id_ is None:
        raise Refused(f'"{worker}" is no worker', remedy="write FLOW.TIER-NUMBER", code="worker-unknown")
    with ExitStack() as stack:
        registry = open_registry(os.environ)
        stack.callback(registry.close)
        version, spec = _read_spec(registry, id_)
        lease = Lease(registry, LEASE(id_.flow, id_.tier).path, _about(id_))
        stack.callback(lease.close)
        wanted = Wanted(registry, id_)
        stack.callback(wanted.close)
        packages = PackageStore(Path(os.environ[HOME]) / "packages")
        limits = LiveLimits(registry, id_.flow)
        stack.callback(limits.close)
        attempt = TierAttempt(spec, id_.tier, packages, lease, limits)
        stack.callback(attempt.close)
        loaded = [version]

        def reload(newer: int) -> bool:
            """Whether this process goes on with that version: its code and its resources are the same."""
            stored = read_record(registry, SPEC(id_.flow, str(newer)))
            tier = stored.record.tiers.get(id_.tier) if isinstance(stored, Stored) else None
            if not isinstance(stored, Stored) or tier is None or not 0 < tier.process <= loaded[0] <= newer:
                return False
            attempt.take(stored.record)
            tasks.take(stored.record)
            loaded[0] = newer
            return True

        tasks = Tasks(registry, id_, spec, packages, lease, attempt.session)
        service = Service(registry, id_, lease, wanted, version, attempt, tasks, reload)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: service.stop())
        return service.serve()


def _about(id_: RunId) -> dict[str, Any]:
    return {"run": id_.number, "pid": os.getpid(), "host": socket.gethostname()}


def _read_spec(registry: Registry, id_: RunId) -> tuple[int, Spec]:
    """(version, what it is) that the tier is wanted in."""
    wish = read_record(registry, WANTED(id_.flow, id_.tier))
    if not isinstance(wish, Stored):
        why = f"{shown(wish.path)} {wish.why}" if isinstance(wish, Damaged) else f"nobody wants a worker of {id_.flow}.{id_.tier}"
        raise Refused(why, remedy="submit the flow: scribengin apply FILE", code="worker-unknown")
    version = wish.record.version
    spec = read_record(registry, SPEC(id_.flow, str(version)))
    if not isinstance(spec, Stored):
        why = f"{shown(spec.path)} {spec.why}" if isinstance(spec, Damaged) else f"version {version} of {id_.flow} is not in the registry"
        raise Refused(why, remedy="apply it again", code="worker-unknown")
    return version, spec.record
