"""Two requests of ZooKeeper 3.6 and newer that kazoo does not know: many reads at once, and a watch on all that is below a node.

Numbers and layouts are those of ZooKeeper's `zookeeper.jute` and `OpCode`. A read of many is not a transaction: each node is read
separately, and one that does not exist or may not be read does not affect the others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from kazoo.exceptions import EXCEPTIONS
from kazoo.protocol.serialization import (
    GetChildren,
    GetData,
    MultiHeader,
    Watch,
    int_struct,
    multiheader_struct,
    read_buffer,
    read_string,
    stat_struct,
    write_string,
)
from kazoo.protocol.states import ZnodeStat

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_ERROR = -1
_RECURSIVE = 1
"""a persistent watch on a node and all below it; 0 would be on the node alone"""


@dataclass(frozen=True, slots=True)
class ReadMany:
    """`GetData`s and `GetChildren`s in one request. The answer has one result for each: (data, stat), a list of names, or an exception."""

    type: ClassVar[int] = 22
    questions: Sequence[Any]

    def serialize(self) -> bytes:
        """For kazoo's connection."""
        parts = [MultiHeader(each.type, False, -1).serialize() + each.serialize() for each in self.questions]
        return b"".join((*map(bytes, parts), multiheader_struct.pack(-1, True, -1)))

    @classmethod
    def deserialize(cls, answer: bytes, offset: int) -> list[Any]:
        """For kazoo's connection."""
        results: list[Any] = []
        header, offset = MultiHeader.deserialize(answer, offset)
        while not header.done:
            if header.type == GetData.type:
                data, offset = read_buffer(answer, offset)
                stat = ZnodeStat._make(stat_struct.unpack_from(answer, offset))
                offset += stat_struct.size
                results.append((data or b"", stat))
            elif header.type == GetChildren.type:
                (count,) = int_struct.unpack_from(answer, offset)
                offset += int_struct.size
                names = []
                for _ in range(count):
                    name, offset = read_string(answer, offset)
                    names.append(name)
                results.append(names)
            else:
                if header.type != _ERROR:
                    raise ValueError(f"an answer of type {header.type} among many")
                (code,) = int_struct.unpack_from(answer, offset)
                offset += int_struct.size
                results.append(EXCEPTIONS[code]())
            header, offset = MultiHeader.deserialize(answer, offset)
        return results


@dataclass(frozen=True, slots=True)
class WatchBelow:
    """Request a notification of each change of the node and of all below it, until this connection ends."""

    type: ClassVar[int] = 106
    path: str

    def serialize(self) -> bytes:
        """For kazoo's connection."""
        return bytes(write_string(self.path)) + bytes(int_struct.pack(_RECURSIVE))

    @classmethod
    def deserialize(cls, _answer: bytes, _offset: int) -> bool:
        """For kazoo's connection."""
        return True


def send(client: Any, request: ReadMany | WatchBelow) -> Any:
    """Send a request; returns kazoo's promise of the answer."""
    promise = client.handler.async_result()
    client._call(request, promise)
    return promise


def see_events(client: Any, seen: Callable[[str], None]) -> None:
    """Call `seen(place)` for each change that the server reports, in kazoo's thread, in their order and before any answer that came later.
    kazoo looks for a watch at exactly that place, and a watch on all below has no such place."""
    connection = client._connection
    read = connection._read_watch_event

    def reading(event: bytes, offset: int) -> None:
        place = Watch.deserialize(event, offset)[0].path
        if place:  # empty: the session has changed, of which the client's listener tells
            seen(place)
        read(event, offset)

    connection._read_watch_event = reading
