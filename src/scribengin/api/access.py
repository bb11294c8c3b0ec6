"""The caller of a request, and its rights."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING

from scribengin.core.errors import Refused

if TYPE_CHECKING:
    from collections.abc import Mapping


class Role(IntEnum):
    """Each role includes the rights of the roles before it."""

    VIEWER = 1
    """read"""
    OPERATOR = 2
    """set the desired state of existing flows: pause, resume, drain, stop"""
    EDITOR = 3
    """change flows: submit, roll back, delete; packages"""
    ADMIN = 4
    """write records of the registry"""


@dataclass(frozen=True, slots=True)
class Who:
    """The caller. `labels`: it has access only to flows with all of these; empty: to all flows."""

    name: str
    role: Role
    labels: Mapping[str, str] = field(default_factory=dict)

    def may_see(self, labels: Mapping[str, str]) -> bool:
        """Whether the caller has access to a flow with these labels."""
        return all(labels.get(label) == value for label, value in self.labels.items())

    def check(self, role: Role) -> None:
        """Raise Refused if the caller's role is lower than `role`."""
        if self.role < role:
            raise Refused(
                f"{self.name} has role {self.role.name.lower()}; this needs role {role.name.lower()}",
                remedy="use a token of that role: scribengin token add NAME --role ROLE",
                code="role-lacking",
            )
