"""What `tiers`, `edges` and `groups` may have wrong by themselves."""

from __future__ import annotations

from scribengin.spec.problem_entry import ProblemEntry

CATALOG: tuple[ProblemEntry, ...] = (
    ProblemEntry(
        "edge-form",
        "An edge that is not an arrow",
        "Edges are called by their two ends, `a -> b`: a node or `route.branch`, and a node that reads it.",
        "Write the two ends with `->` between them.",
        'edges:\n  "orders => big": {compression: zstd}',
        slot="top",
        fix=("=>", "->"),
    ),
    ProblemEntry(
        "encryption-keys",
        "Keys that do not fit together",
        "The keys of an edge come from a `keyring`, a file whose last line writes, or stand under `keys`, of which `use` names the one "
        "that writes; not from both.",
        "Give one of the two; with several `keys` name one of them under `use`.",
        'edges:\n  "orders -> big": {encryption: {keys: {k1: "${secret:env/HOME}"}, use: k2}}',
        slot="top",
        fix=("use: k2", "use: k1"),
    ),
    ProblemEntry(
        "water-levels",
        "Levels that do not rise",
        "A feeder slows down above `high_water`, stops at `capacity` and goes on below `low_water`; rows, bytes and age are compared each "
        "by themselves, together with what `defaults.edge` says.",
        "Let low_water, high_water and capacity rise in this order.",
        'edges:\n  "orders -> big": {high_water: {rows: 1000}, low_water: {rows: 5000}}',
        slot="top",
        fix=("rows: 5000", "rows: 500"),
    ),
    ProblemEntry(
        "group-empty",
        "A group without members",
        "Nothing could run there, or be sent there.",
        "Name a member, or take the group out.",
        "groups:\n  hosts: {members: []}",
        slot="top",
        fix=("[]", "[{at: host1}]"),
    ),
)
