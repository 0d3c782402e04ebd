"""The datagrams of systemd's notify protocol, by which a process reports to the service manager that started it.

docs/decisions/0014 gives the reason for this implementation.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable

from bubbot.log import printable, redact

log = logging.getLogger(__name__)

STATUS_LIMIT = 300
"""The maximum length of a status, in characters."""
NOTIFY_READY, NOTIFY_STOPPING, NOTIFY_WATCHDOG = "READY=1", "STOPPING=1", "WATCHDOG=1"


class ServiceNotifier:
    """Reports the state of the process to a service manager. Without an address every call does nothing.

    Each call returns true if the message was sent, or did not have to be; it never waits and never raises. A full queue
    accepts nothing, so callers repeat a message until it was sent.
    """

    def __init__(self, address: str, monotonic_ns: Callable[[], int]) -> None:
        """Set up the notifier without connecting.

        Args:
            address: the path of a socket, or `@` and an abstract name; empty to disable the notifier.
        """
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._monotonic_ns = monotonic_ns
        self._socket: socket.socket | None = None
        self._is_reachable = True
        self._is_started = False

    @property
    def is_enabled(self) -> bool:
        """True if there is a service manager to notify."""
        return bool(self._address)

    def report_started(self, status: str) -> bool:
        """Send READY."""
        self._is_started = self._send(NOTIFY_READY, _status(status)) or self._is_started
        return self._is_started

    def report_reloaded(self) -> bool:
        """Report that a reload is over."""
        return self._send(NOTIFY_READY) if self._is_started else True

    def report_reloading(self) -> bool:
        """Report the start of a reload; send nothing during the start-up, as `ready` would end that, too."""
        return self._send("RELOADING=1", f"MONOTONIC_USEC={self._monotonic_ns() // 1000}") if self._is_started else True

    def report_status(self, text: str) -> bool:
        """Report the current activity in a line for people."""
        return self._send(_status(text))

    def report_alive(self) -> bool:
        """Send a sign of life."""
        return self._send(NOTIFY_WATCHDOG)

    def report_stopping(self, status: str) -> bool:
        """Report that the process is shutting down."""
        return self._send(NOTIFY_STOPPING, _status(status))

    def extend_timeout(self, seconds: float) -> bool:
        """Request up to this many seconds from now for the current start or shutdown."""
        return self._send(f"EXTEND_TIMEOUT_USEC={int(seconds * 1e6)}")

    def close(self) -> None:
        """Close the socket; the next call opens another."""
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
            # Unconnected: a restarted manager listens on the same path with another socket.
            self._socket.sendto("\n".join(lines).encode(), self._address)
        except (OSError, ValueError) as error:
            if self._is_reachable:
                log.warning("service manager unreachable: %s", error, extra={"action": "service.untold"})
            self._is_reachable = False
            return False
        self._is_reachable = True
        return True


def _status(text: str) -> str:
    line = printable(" ".join(redact(text).split()))  # a secret may hold several blanks
    return "STATUS=" + (line if len(line) <= STATUS_LIMIT else line[: STATUS_LIMIT - 1] + "…")
