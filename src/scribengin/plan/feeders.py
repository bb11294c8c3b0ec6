"""Which of the ledger's nodes feed which: what one puts out must arrive at the next."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scribengin.plan.graph import base, branches

if TYPE_CHECKING:
    from collections.abc import Collection

    from scribengin.plan.model import QueryPlan
    from scribengin.spec.model import Flow


def feeders(ledger: Collection[str], query: QueryPlan, flow: Flow) -> dict[str, tuple[str, ...]]:
    """Node of the ledger → the nodes of the ledger that it reads, for `balance`.

    A run of native steps is one node there (`known+hot`): it reads what its steps read and it does not hold itself, and its rows are
    those of its last step. Left out are readers of a step with branches, which counts its branches together, and the inputs of a union
    that are kept apart up to a step with state, each with the steps behind the union.
    """
    found: dict[str, tuple[str, ...]] = {}
    for name in ledger:
        members = name.split("+")
        if sum(other.split("+")[-1] == members[-1] for other in ledger) > 1:
            continue
        read = [ref for id_ in members for ref in query.node(id_).inputs if base(ref) not in members]
        ends = [[other for other in ledger if other.split("+")[-1] == base(ref)] for ref in dict.fromkeys(read)]
        if read and all(ends) and not any(branches(flow.node(ref)) for ref in read):
            found[name] = tuple(dict.fromkeys(other for others in ends for other in others))
    return found
