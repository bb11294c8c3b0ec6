"""What the REST API says and takes of groups; as `models`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from scribengin.client.closed import CLOSED


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A member. `cost` is what holds, `costs` what flow files say; `out`: somebody took it out, and `why`. `seen`: each sink that goes to
    the group, how it finds the member (`healthy`, `failed`, `out`), and how many Batches went there by its process."""

    member: str
    cost: float | None
    costs: tuple[float, ...]
    out: bool
    why: str
    seen: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class GroupRow:
    """A group, the flows that name it, and its members. `refused`: why what was written of it in the registry does not hold."""

    group: str
    flows: tuple[str, ...]
    members: tuple[GroupMember, ...]
    refused: str = ""


@dataclass(frozen=True, slots=True)
class SetMember:
    """Take a member out of turn (`out`, and `why`) or let it back; what it costs (0: as flow files say). What is null stays."""

    out: bool | None = None
    why: str = ""
    cost: float | None = None
    __pydantic_config__ = CLOSED
