"""Whether a spare worker waits for a tier."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scribengin.spec.model import Flow, Standby


def standby_of(flow: Flow, tier: str) -> Standby:
    """What the tier says, else what `defaults` say."""
    said = flow.tiers[tier].resources.standby if tier in flow.tiers else None
    return flow.defaults.standby if said is None else said
