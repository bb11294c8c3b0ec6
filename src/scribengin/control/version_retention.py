"""Decides which versions of flows are kept: each is a record, and a flow that is submitted every hour would fill the registry."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scribengin.registry.contract import Conflict, Delete, Require
from scribengin.registry.record_io import Stored, names, read_record
from scribengin.registry.records import UNDER_WAY
from scribengin.registry.tree import DESIRED, OPERATION, REPORT, SPEC, STATUS, WANTED

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from scribengin.registry.contract import Registry, Term
    from scribengin.registry.records import Spec


KEPT_VERSIONS = 50
"""number of newest versions that are kept for each flow, besides older ones in use"""
_COMMIT_WRITES = 100


def surplus(specs: Mapping[str, Mapping[int, Spec]], in_use: Mapping[str, Collection[int]], keep: int) -> dict[str, list[int]]:
    """The versions that may be removed.

    Not removed are the `keep` newest, those in use, and those submitted as one with a version of another flow that stays: `rollback`
    restores these together.

    Args:
        specs: flow → version → its Spec; None for one that cannot be read.
        in_use: flow → its versions in use.
        keep: the number of newest versions to keep.

    Returns:
        Flow → its versions, oldest first.

    >>> surplus({"a": {1: None, 2: None, 3: None}}, {"a": [1]}, 1)
    {'a': [2]}
    """
    stay = {flow: {*sorted(there)[-keep:], *in_use.get(flow, ())} for flow, there in specs.items()}
    together: dict[str, set[int]] = {}
    for flow, numbers in stay.items():
        for number in numbers:
            spec = specs[flow].get(number)
            for other, version in spec.together.items() if spec is not None else ():
                together.setdefault(other, set()).add(version)
    found = {flow: sorted(there.keys() - stay[flow] - together.get(flow, set())) for flow, there in specs.items()}
    return {flow: numbers for flow, numbers in found.items() if numbers}


def prune_versions(registry: Registry, specs: Mapping[str, Mapping[int, Spec]], keep: int, term: Term) -> int:
    """Remove the versions that are not kept. Of a flow whose desired state changes meanwhile, no further version is removed.

    Args:
        registry: where the versions are.
        specs: flow → version → its Spec, for all versions.
        keep: the number of newest versions to keep.
        term: the Term under which they are removed.

    Returns:
        The number of versions removed.

    Raises:
        FencedError, Unreachable: the registry's.
    """
    full = [*surplus(specs, {}, keep)]  # versions in use are read only for these flows: they can only reduce what may be removed
    if not full:
        return 0
    in_use = {flow: versions_in_use(registry, flow) for flow in full}
    gone = 0
    for flow, numbers in surplus(specs, in_use, keep).items():
        desired = registry.read(DESIRED(flow).path)
        if flow not in in_use or desired is None or versions_in_use(registry, flow) - in_use[flow]:
            continue
        for at in range(0, len(numbers), _COMMIT_WRITES):
            part = [Delete(SPEC(flow, str(number)).path) for number in numbers[at : at + _COMMIT_WRITES]]
            try:
                # a rollback to one of these versions writes DESIRED: then this commit conflicts, or the rollback finds the version removed
                registry.commit(*part, Require(desired.path, desired.version), term=term)
            except Conflict:
                break
            gone += len(part)
    return gone


def versions_in_use(registry: Registry, flow: str) -> set[int]:
    """The versions in use: the present or last desired version, those in the records of workers, and that of a current operation."""
    desired, status = read_record(registry, DESIRED(flow)), read_record(registry, STATUS(flow))
    found = {status.record.version} if isinstance(status, Stored) else set()
    if isinstance(desired, Stored):
        found.add(desired.record.version)
        number, operation_id = str(desired.record.version), desired.record.operation  # written by hand, the values may be invalid
        spec = read_record(registry, SPEC(flow, number)) if SPEC.fits(flow, number) else None
        for tier in spec.record.tiers.values() if isinstance(spec, Stored) else ():
            found |= {tier.since, tier.process}
        operation = read_record(registry, OPERATION(flow, operation_id)) if OPERATION.fits(flow, operation_id) else None
        if isinstance(operation, Stored) and operation.record.step in UNDER_WAY:
            found.add(operation.record.version)
    for name in names(registry, f"flows/{flow}/wanted"):
        if WANTED.fits(flow, name) and isinstance(wish := read_record(registry, WANTED(flow, name)), Stored):
            found.add(wish.record.version)
    for name in names(registry, f"flows/{flow}/tiers"):
        if REPORT.fits(flow, name) and isinstance(report := read_record(registry, REPORT(flow, name)), Stored):
            found.add(report.record.version)
    return found
