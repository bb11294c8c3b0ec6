"""Who asks, and what he may do."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING

from scribengin.core.errors import Refused

if TYPE_CHECKING:
    from collections.abc import Mapping


class Role(IntEnum):
    """Each may do what the ones before may."""

    VIEWER = 1
    """look"""
    OPERATOR = 2
    """say what is wanted of flows that are there: pause, resume, drain, stop"""
    EDITOR = 3
    """change what flows are: submit, go back, delete; packages"""
    ADMIN = 4
    """write records of the registry"""


@dataclass(frozen=True, slots=True)
class Who:
    """Somebody who asks. `labels`: of flows with all of these only; empty: of all."""

    name: str
    role: Role
    labels: Mapping[str, str] = field(default_factory=dict)

    def may_see(self, labels: Mapping[str, str]) -> bool:
        """Whether a flow with these labels is one that he has to do with."""
        return all(labels.get(label) == value for label, value in self.labels.items())

    def check(self, role: Role) -> None:
        """Raise Refused where he has not so much."""
        if self.role < role:
            raise Refused(
                f"{self.name} is {self.role.name.lower()}; this takes {role.name.lower()}",
                remedy="ask with a token of that role: scribengin token add NAME --role ROLE",
                code="role-lacking",
            )
