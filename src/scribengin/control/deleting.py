"""What is removed when a flow is deleted, and what stays: numbers that must never be used twice, and unknown records."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from scribengin.registry.records import DAMAGED
from scribengin.registry.tree import DESIRED, LEASE, LEASE_TERM, LIMIT, RUN, TREE, WORKERS, branch_of

if TYPE_CHECKING:
    from scribengin.registry.contract import Registry

_STAY = (RUN, LEASE, LEASE_TERM)
"""the numbers of its runs, the Terms of its leases"""


def records_of(registry: Registry, flow: str) -> list[str]:
    """The paths of all that is removed with a flow except its desired state, deepest first."""
    nodes = [f"logicalnodes/{name}" for name in registry.children("logicalnodes") if name.partition(".")[0] == flow]
    roots = [f"flows/{flow}", *nodes, f"acks/{flow}", LIMIT(flow).path, WORKERS(flow).path]
    children: dict[str, list[str]] = {}
    level = [path for path, found in zip(roots, registry.read_many(roots), strict=True) if found is not None]
    order: list[str] = []
    while level:
        order += level
        found = registry.children_many(level)
        children.update({path: [f"{path}/{name}" for name in names] for path, names in zip(level, found, strict=True)})
        level = [path for path in level for path in children[path]]
    gone: dict[str, bool] = {}
    for path in reversed(order):
        gone[path] = all(gone[below] for below in children[path]) and _goes(path)
    wanted = DESIRED(flow).path
    return [path for path, goes in gone.items() if goes and path not in (wanted, f"flows/{flow}")]


def _goes(path: str) -> bool:
    branch = branch_of(path)
    return f"/{DAMAGED}" in path or (branch not in _STAY if branch is not None else _is_folder(path))


def _is_folder(path: str) -> bool:
    """Whether the tree has records below it."""
    above = {branch.path.rpartition("/")[0] for branch in TREE}
    above |= {path.rpartition("/")[0] for path in above}
    return any(replace(TREE[0], path=each).matches(path) for each in above)
