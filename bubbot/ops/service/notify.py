"""What a process tells the service manager that started it: the datagrams of systemd's notify protocol.

docs/decisions/0014 says why these lines are ours.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable

from bubbot.log import printable, redact

log = logging.getLogger(__name__)

STATUS_LIMIT = 300
"""Characters of a status that are passed on."""
NOTIFY_READY, NOTIFY_STOPPING, NOTIFY_WATCHDOG = "READY=1", "STOPPING=1", "WATCHDOG=1"


class ServiceNotifier:
    """Tells a service manager how the process is. Without an address every call does nothing.

    Each call returns whether the message was taken, or had not to be sent; it never waits and never raises. A full
    queue takes nothing, so whoever says something once says it again until it was taken.
    """

    def __init__(self, address: str, monotonic_ns: Callable[[], int]) -> None:
        """`address` is the path of a socket, or `@` and a name; `monotonic_ns` is the clock of the system."""
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._monotonic_ns = monotonic_ns
        self._socket: socket.socket | None = None
        self._told = True
        self._begun = False

    @property
    def listens(self) -> bool:
        """Whether there is anybody to tell."""
        return bool(self._address)

    def begun(self, status: str) -> bool:
        """The start-up is over."""
        self._begun = self._send(NOTIFY_READY, _status(status)) or self._begun
        return self._begun

    def ready(self) -> bool:
        """A reload is over."""
        return self._send(NOTIFY_READY) if self._begun else True

    def reloading(self) -> bool:
        """A reload begins; `ready` follows. During the start-up, which is not over by a reload, nothing is told."""
        return self._send("RELOADING=1", f"MONOTONIC_USEC={self._monotonic_ns() // 1000}") if self._begun else True

    def status(self, text: str) -> bool:
        """What the process is doing, in a line for people."""
        return self._send(_status(text))

    def alive(self) -> bool:
        """A sign of life."""
        return self._send(NOTIFY_WATCHDOG)

    def stopping(self, status: str) -> bool:
        """The process ends, in its own time."""
        return self._send(NOTIFY_STOPPING, _status(status))

    def extend(self, seconds: float) -> bool:
        """What goes on just now, start or end, may take this long from now, if it would not have been allowed to."""
        return self._send(f"EXTEND_TIMEOUT_USEC={int(seconds * 1e6)}")

    def close(self) -> None:
        """Frees the socket; the next call makes another."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _send(self, *lines: str) -> bool:
        if not self._address:
            return True
        try:
            if self._socket is None:
                self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
                self._socket.setblocking(False)  # noqa: FBT003 - the library's own signature
            # Not connected: a manager that was started again listens on the same path with another socket.
            self._socket.sendto("\n".join(lines).encode(), self._address)
        except (OSError, ValueError) as error:
            if self._told:
                log.warning("the service manager cannot be told: %s", error, extra={"action": "service.untold"})
            self._told = False
            return False
        self._told = True
        return True


def _status(text: str) -> str:
    shown = printable(redact(" ".join(text.split())))
    return "STATUS=" + (shown if len(shown) <= STATUS_LIMIT else shown[: STATUS_LIMIT - 1] + "…")
