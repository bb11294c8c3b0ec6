"""A master's keeper of packages goes on, whatever becomes of one look, and whoever hears of the versions fails."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import structlog
from plane import until
from structlog.testing import CapturingLogger

from scribengin.control import flow_requests
from scribengin.core.errors import Refused
from scribengin.hosts.package_keeper import PackageKeeper
from scribengin.packages.store import PackageStore
from scribengin.registry.memory import MemoryRegistry, MemoryStore
from scribengin.registry.records import TierSpec

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def applied(registry: MemoryRegistry, number: int) -> str:
    package = f"{number:064x}"
    submission = flow_requests.Submission("tweets", package, "flow.yaml", "/base", {"main": TierSpec()})
    flow_requests.apply(registry, submission, state=lambda _: "/state", by="me")
    return package


def test_packages_are_fetched_though_versions_cannot_be_removed_and_a_mistake_does_not_end_it(tmp_path: Path) -> None:
    store, told = MemoryStore(), CapturingLogger()
    person, numbers = store.client(), itertools.count(1)
    failures = [Refused("not now"), ValueError("a mistake")]

    def hear(_specs: Mapping[str, object]) -> None:
        if failures:
            raise failures.pop(0)

    def said(text: str) -> bool:
        return any(text in str(call) for call in told.calls.copy())

    log = structlog.wrap_logger(told, processors=[])
    first = applied(person, next(numbers))
    with PackageKeeper(store.client(), PackageStore(tmp_path), "http://127.0.0.1:1", {}, log=log, hear=hear):
        until(lambda: said("not now") and said(first), "the first package is looked for")
        second = applied(person, next(numbers))
        until(lambda: not failures and said(second), "and the second")
        third = applied(person, next(numbers))
        until(lambda: said(third), "and the third")
