"""Models of the REST API for groups; see also `models`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from scribengin.client.closed import CLOSED


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A member. `cost` is in force, `costs` are those of the flow files; `out`: it was disabled, for the reason `why`. `seen`: for each
    sink that goes to the group, the state in which it finds the member (`healthy`, `failed`, `out`), and how many Batches its process sent
    there."""

    member: str
    cost: float | None
    costs: tuple[float, ...]
    out: bool
    why: str
    seen: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class GroupRow:
    """A group, the flows that name it, and its members. `refused`: why its record in the registry is not in force."""

    group: str
    flows: tuple[str, ...]
    members: tuple[GroupMember, ...]
    refused: str = ""


@dataclass(frozen=True, slots=True)
class SetMember:
    """Disable a member (`out`, and `why`), enable it, or set its cost (0: the cost of the flow files). Null leaves a value unchanged."""

    out: bool | None = None
    why: str = ""
    cost: float | None = None
    __pydantic_config__ = CLOSED
