"""The contract of `NodeType.locations`: where a node reads or writes outside of the flow, so that flows which share a place are found.

A function gets the options of a node, as the flow file gives them, and yields its locations. It is named as `module:function`. The option
`path` needs no function: it is a folder.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    Locations = Callable[[Mapping[str, Any]], Iterator["DataLocation"]]


@dataclass(frozen=True, slots=True)
class DataLocation:
    """Objects or files below an address, a table, or a topic; without a login, so that it is the same for all that use it."""

    kind: Literal["objects", "table", "topic"]
    at: str
    """for objects their URL, with the endpoint; for a table the server and database; for a topic the servers of its cluster, separated by
    commas: two lists with one server in common mean the same cluster"""
    name: str = ""
    """the name of the topic or table"""
    many: bool = False
    """for objects: all below, too; for a topic: `name` is a regular expression"""
