"""Problem codes of `tiers`, `edges` and `groups` that need no other part of the flow."""

from __future__ import annotations

from scribengin.spec.problem_entry import ProblemEntry

CATALOG: tuple[ProblemEntry, ...] = (
    ProblemEntry(
        "edge-form",
        "An invalid name of an edge",
        "An edge is named by its two ends, `a -> b`: a node or `route.branch`, and a node that reads it.",
        "Write the two ends with `->` between them.",
        'edges:\n  "orders => big": {compression: zstd}',
        slot="top",
        fix=("=>", "->"),
    ),
    ProblemEntry(
        "encryption-keys",
        "Keys that do not fit together",
        "The keys of an edge come either from a `keyring`, a file whose last line encrypts, or from `keys`, of which `use` names the one "
        "that encrypts; not from both.",
        "Use one of the two; with several `keys`, name one of them under `use`.",
        'edges:\n  "orders -> big": {encryption: {keys: {k1: "${secret:env/HOME}"}, use: k2}}',
        slot="top",
        fix=("use: k2", "use: k1"),
    ),
    ProblemEntry(
        "water-levels",
        "Thresholds in the wrong order",
        "A writing tier is throttled above `high_water`, pauses at `capacity` and runs freely below `low_water`. Rows, bytes and age "
        "are compared "
        "separately, and values from `defaults.edge` are included.",
        "Write values with low_water ≤ high_water ≤ capacity.",
        'edges:\n  "orders -> big": {high_water: {rows: 1000}, low_water: {rows: 5000}}',
        slot="top",
        fix=("rows: 5000", "rows: 500"),
    ),
    ProblemEntry(
        "group-empty",
        "A group without members",
        "A group without members has no host to run on and no endpoint to send to.",
        "Add a member, or take the group out.",
        "groups:\n  hosts: {members: []}",
        slot="top",
        fix=("[]", "[{at: host1}]"),
    ),
)
