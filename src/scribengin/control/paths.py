"""Where the control plane's records lie, below the registry's root. Who may write which: docs/registry.md."""

from __future__ import annotations

from dataclasses import dataclass

FLOWS = "flows"
NODES = "physicalnodes"
LOGICAL = "logicalnodes"


@dataclass(frozen=True, slots=True)
class FlowPaths:
    """Of one flow."""

    flow: str

    @property
    def root(self) -> str:
        """The flow's folder."""
        return f"{FLOWS}/{self.flow}"

    @property
    def desired(self) -> str:
        """What people want of it: a `Wish`."""
        return f"{self.root}/desired"

    @property
    def status(self) -> str:
        """How it stands: a `FlowStatus`."""
        return f"{self.root}/status"

    @property
    def specs(self) -> str:
        """The folder of its versions."""
        return f"{self.root}/spec"

    def spec(self, version: int) -> str:
        """What a version is: a `Spec`."""
        return f"{self.specs}/{version}"

    @property
    def tiers(self) -> str:
        """The folder of its tiers."""
        return f"{self.root}/tiers"

    def tier(self, tier: str) -> TierPaths:
        """Of one of its tiers."""
        return TierPaths(self.flow, tier)


@dataclass(frozen=True, slots=True)
class TierPaths:
    """Of one tier of a flow."""

    flow: str
    tier: str

    @property
    def root(self) -> str:
        """The tier's folder."""
        return f"{FLOWS}/{self.flow}/tiers/{self.tier}"

    @property
    def wanted(self) -> str:
        """What its worker is to do: a `TierWish`, written by the leading master."""
        return f"{self.root}/wanted"

    @property
    def run(self) -> str:
        """Which worker is to serve it: a `Run`, written by the leading master."""
        return f"{self.root}/run"

    @property
    def status(self) -> str:
        """What its worker says: a `Report`."""
        return f"{self.root}/status"

    @property
    def lease(self) -> str:
        """The right to run it: ephemeral, its worker's."""
        return f"{self.root}/lease"


def mapping(flow: str, tier: str) -> str:
    """Which physical node a tier is bound to: a `Mapping`; not there where it is bound to none."""
    return f"{LOGICAL}/{flow}.{tier}"
