"""Adds to kazoo's client the data of its connections, and a limit for each try. For `registry.zookeeper_session`."""

from __future__ import annotations

import socket
import ssl
import time
import traceback
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

_CLOCK = getattr(
    time, "CLOCK_BOOTTIME", None
)  # counts while the machine sleeps, as its servers elsewhere do; macOS's monotonic clock does too


def now_s() -> float:
    """Seconds of a clock that never goes back, and continues while this process, or this machine, is suspended."""
    return time.monotonic() if _CLOCK is None else time.clock_gettime(_CLOCK)


def see_connections(
    client: Any, granted: Callable[[int, float, float], None], failed: Callable[[Exception], None], within_s: float
) -> None:
    """Call `granted(session, sent, granted)` at each connection: the time of its request, and the lifetime of the session, in seconds.

    kazoo does not expose the lifetime that the server grants; its read time-out, which its connection returns, is two thirds of it. It only
    logs why there is no connection. And it gives one server all of the session's time to answer: a server that is starting and never does,
    or a host that is gone, would cost the session, so the next try comes after `within_s`.
    """
    connection, handler = client._connection, client.handler
    connect, invoke, create_connection = connection._connect, connection._invoke, handler.create_connection

    def connecting(*place: Any) -> Any:
        sent_s = now_s()
        try:
            read_ms, connect_ms = connect(*place)
        except Exception as error:
            failed(error)
            raise
        granted(client.client_id[0], sent_s, read_ms * 1.5 / 1000)
        return read_ms, connect_ms

    def create(*some: Any, timeout: float, **more: Any) -> Any:
        try:
            return create_connection(*some, timeout=min(timeout, within_s), **more)
        except ssl.SSLError as error:
            _close_sockets(error)
            raise

    connection._connect = connecting
    connection._invoke = lambda timeout, *rest, **more: invoke(min(timeout, within_s), *rest, **more)
    handler.create_connection = create


def _close_sockets(error: BaseException) -> None:
    """Close the sockets in the frames of the error's traceback: kazoo leaves a connection that TLS refused to the garbage collector, one
    for each try."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        for value in frame.f_locals.values():
            if isinstance(value, socket.socket):
                value.close()
