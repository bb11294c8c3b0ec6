"""The records of quotas: read for a master, written by commands, and listed with their present use."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from scribengin.control.quotas import Taken, fits, is_at_work, taken_by
from scribengin.control.record_validation import again, refusal
from scribengin.control.world import Allowance, FlowSeen, ObservedTier, Wish
from scribengin.core.errors import Refused
from scribengin.core.time_text import now_text
from scribengin.registry.contract import Damaged, Delete
from scribengin.registry.record_io import Stored, put, read_record, read_records
from scribengin.registry.records import Quota, TierSpec, spec_of
from scribengin.registry.tree import DESIRED, QUOTA, RUN, SHARE, SPARE, SPEC, STATUS, WANTED

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from scribengin.control.registry_cache import Mirror
    from scribengin.registry.contract import Registry
    from scribengin.registry.record_io import Newer, Spot
    from scribengin.registry.records import Spec

_FOLDER = "quotas"
_MOST = {"cores": 10**6, "memory_bytes": 10**18, "rows_per_s": 1e15}


@dataclass(frozen=True, slots=True)
class Quotas:
    """The quotas, and the refusals of invalid ones: name → refusal, in the form of a status."""

    allowed: Mapping[str, Allowance] = field(default_factory=dict)
    refused: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def refused_of(self, labels: Mapping[str, str]) -> dict[str, Mapping[str, Any]]:
        """The refused records that concern a flow with these labels: path → refusal, in the form of a status."""
        return {QUOTA(name).path: said for name, said in self.refused.items() if self.allowed[name].covers(labels)}


def read_quotas(mirror: Mirror) -> Quotas:
    """Read the quotas. Records whose names are not valid for a quota are ignored."""
    there = [name for name in mirror.children(_FOLDER) if QUOTA.fits(name)]
    mirror.fetch([QUOTA(name).path for name in there])
    allowed: dict[str, Allowance] = {}
    refused: dict[str, Mapping[str, Any]] = {}
    for name in there:
        found = mirror.stored(QUOTA(name))
        if found is None:
            continue  # it was removed between the two reads
        allowed[name] = _allowance(name, found)
        if allowed[name].closed:
            remedy = f"fix the record, or replace it: scribengin quota set {name} …, or delete it: scribengin quota remove {name}"
            why = f"{allowed[name].closed}; no further flow starts under it"
            refused[name] = refusal(mirror.read(QUOTA(name).path), why, remedy)
    return Quotas(allowed, refused)


def set_quota(
    registry: Registry,
    name: str,
    *,
    cores: int | None = None,
    memory_bytes: int | None = None,
    rows_per_s: float | None = None,
    off: Collection[str] = (),
    by: str,
) -> None:
    """Create or change the shared quota of flows with a label.

    Args:
        registry: where quotas are recorded.
        name: the label, as `label=value`.
        cores: the most cores together; None: unchanged.
        memory_bytes: the most memory together; None: unchanged.
        rows_per_s: the most rows per second together; None: unchanged.
        off: the limits to remove, by their names in the record.
        by: the user, for the record.

    Raises:
        Refused: the quota is not valid.
    """
    given = {"cores": cores, "memory_bytes": memory_bytes, "rows_per_s": rows_per_s}
    if not QUOTA.fits(name):
        raise Refused(
            f'"{name}" is not a valid label of a quota',
            remedy="write LABEL=VALUE, such as team=search; the value has letters, digits and . _ : - only",
            code="quota-name",
        )
    said = {key: value for key, value in given.items() if value is not None}
    if unknown := [key for key in off if key not in given or key in said]:
        raise Refused(f"{', '.join(unknown)} cannot be off", remedy=f"name one of {', '.join(given)} that is not set", code="quota-value")
    for key, value in said.items():
        if not 0 < value <= _MOST[key]:
            raise Refused(
                f"{key} {value:g} is not a valid bound",
                remedy="give a number above 0; to let nothing through, run: scribengin pause -l LABEL=VALUE",
                code="quota-value",
            )

    def attempt() -> None:
        there = read_record(registry, QUOTA(name))
        before = there.record if isinstance(there, Stored) and not _allowance(name, there).closed else Quota()
        quota = replace(before, **said, **dict.fromkeys(off), by=by, at=now_text())
        if quota.cores is None and quota.memory_bytes is None and quota.rows_per_s is None:
            remedy = f"pass --cores, --memory or --rows-per-second; to remove the quota, run: scribengin quota remove {name}"
            raise Refused(f"quota {name} would limit nothing", remedy=remedy, code="quota-value")
        registry.commit(put(registry, QUOTA(name), quota))

    again(attempt)


def remove_quota(registry: Registry, name: str) -> None:
    """Remove a quota. Raises Refused if there is no such quota."""

    def attempt() -> None:
        there = registry.read(QUOTA(name).path) if QUOTA.fits(name) else None
        if there is None:
            known = ", ".join(each for each in registry.children(_FOLDER) if QUOTA.fits(each)) or "none"
            raise Refused(f'there is no quota "{name}"', remedy=f"there are: {known}", code="quota-unknown")
        registry.commit(Delete(there.path, there.version))

    again(attempt)


def list_quotas(registry: Registry) -> list[dict[str, Any]]:
    """All quotas as JSON, each with the present use by its flows. Works without a running master."""
    there = [name for name in registry.children(_FOLDER) if QUOTA.fits(name)]
    found = dict(zip(there, read_records(registry, [QUOTA(name) for name in there]), strict=True))
    allowed = {name: _allowance(name, record) for name, record in found.items() if record is not None}
    flows = _flows(registry, allowed.values()) if allowed else []
    rows = []
    for name, each in sorted(allowed.items()):
        under = {flow.name: flow for flow in flows if each.covers(flow.labels)}
        taken = {flow: taken_by(seen) for flow, seen in under.items()}
        total = Taken(sum(one.cores for one in taken.values()), sum(one.memory_bytes for one in taken.values()))
        rows.append(
            {
                "quota": name,
                "cores": each.cores,
                "memory_bytes": each.memory_bytes,
                "rows_per_s": each.rows_per_s,
                "refused": each.closed,
                "over": not fits(each, total),
                "taken": {"cores": total.cores, "memory_bytes": total.memory_bytes},
                "flows": [_row(under[flow], taken[flow], name) for flow in sorted(under)],
            }
        )
    return rows


def _row(flow: FlowSeen, taken: Taken, quota: str) -> dict[str, Any]:
    mine = flow.share if flow.share is not None and flow.share.quota == quota else None
    waits = flow.wish.goal == "running" and not is_at_work(flow)
    return {
        "flow": flow.name,
        "cores": taken.cores,
        "memory_bytes": taken.memory_bytes,
        "rows_per_s": None if mine is None else mine.rows_per_s,
        "idle": mine is not None and mine.idle,
        "waits": waits,
        "reason": flow.status.reason if waits and flow.status is not None else "",
    }


def _flows(registry: Registry, quotas: Collection[Allowance]) -> list[FlowSeen]:
    """All flows under some of these quotas, with the data that quotas need; a few requests for all of them."""
    names = [name for name in registry.children("flows") if DESIRED.fits(name)]
    found = zip(names, read_records(registry, [DESIRED(name) for name in names]), strict=True)
    wanted = {name: each for name, each in found if isinstance(each, Stored) and SPEC.fits(name, str(each.record.version))}
    spots: dict[str, Spot[Spec]] = {name: SPEC(name, str(each.record.version)) for name, each in wanted.items()}
    values = _values(registry, spots.values())
    specs: dict[str, Spec] = {name: values[spot.path] for name, spot in spots.items() if spot.path in values}
    specs = {name: spec for name, spec in specs.items() if any(quota.covers(spec.labels) for quota in quotas)}
    runs = registry.children_many([f"flows/{name}/runs" for name in specs])
    tiers = {
        name: sorted({*spec.tiers, *(tier for tier in there if RUN.fits(name, tier))})
        for (name, spec), there in zip(specs.items(), runs, strict=True)
    }
    of_tiers = [kind(name, tier) for name in specs for tier in tiers[name] for kind in (WANTED, RUN, SPARE)]
    values = _values(registry, [*of_tiers, *(kind(name) for name in specs for kind in (STATUS, SHARE))])
    rows = []
    for name, spec in specs.items():
        wish = Wish(wanted[name].record.version, wanted[name].record.state, wanted[name].entry.changed)
        seen = {tier: _tier(values, name, tier, spec) for tier in tiers[name]}
        status, share = (values.get(kind(name).path) for kind in (STATUS, SHARE))
        rows.append(FlowSeen(name, wish, seen, status, frozenset(spec.tiers), labels=spec.labels, share=share))
    return rows


def _tier(values: Mapping[str, Any], flow: str, tier: str, spec: Spec) -> ObservedTier:
    said = spec_of(spec, tier) or TierSpec()
    wish, run, spare = (values.get(kind(flow, tier).path) for kind in (WANTED, RUN, SPARE))
    cores, memory_bytes, executors = said.cores, said.memory_bytes, said.executors
    return ObservedTier(tier, cores=cores, memory_bytes=memory_bytes, wish=wish, run=run, spare=spare, executors=executors)


def _values(registry: Registry, spots: Iterable[Spot[Any]]) -> dict[str, Any]:
    """Path → record, for the valid ones."""
    asked = list(spots)
    found = zip(asked, read_records(registry, asked), strict=True)
    return {spot.path: each.record for spot, each in found if isinstance(each, Stored)}


def _allowance(name: str, found: Stored[Quota] | Newer | Damaged) -> Allowance:
    label, _, value = name.partition("=")
    if isinstance(found, Damaged):
        return Allowance(label, value, closed=found.why)
    if not isinstance(found, Stored):
        return Allowance(label, value, closed="was written by a newer Scribengin")
    quota = found.record
    said = {"cores": quota.cores, "memory_bytes": quota.memory_bytes, "rows_per_s": quota.rows_per_s}
    if bad := [key for key, number in said.items() if number is not None and number <= 0]:
        return Allowance(label, value, closed=f"has {' and '.join(bad)} not above 0")
    return Allowance(label, value, quota.cores, quota.memory_bytes, quota.rows_per_s)
