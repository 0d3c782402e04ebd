"""The check that the ports of the bot's servers are free."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

from bubbot.home import Home
from bubbot.ops.doctor.home import is_held
from bubbot.ports.checks import Finding, edit_command
from bubbot.settings.loader import Settings


def check_ports(settings: Settings, home: Home, config: Path) -> Iterator[Finding]:
    """Try each configured port, except while a bot of this home runs, which holds them."""
    addresses = dict(_addresses(settings))
    if not addresses or is_held(home):
        return
    failures = {section: reason for section, (host, port) in addresses.items() if (reason := _find_failure(host, port))}
    for section, reason in failures.items():
        host, port = addresses[section]
        cause = (
            f"[{section}] port {port} on {host} cannot be used for listening ({reason}), and the bot does not start so: choose "
            "another port, or end the program that has it."
        )
        yield Finding("port.used", "problem", cause, edit_command(config))
    if not failures:
        ports = ", ".join(f"{port} of [{section}]" for section, (_, port) in addresses.items())
        yield Finding("port.ok", "ok", f"No other program listens on the port {ports}.")


def _addresses(settings: Settings) -> Iterator[tuple[str, tuple[str, int]]]:
    if settings.health.port:
        yield "health", (settings.health.host, settings.health.port)
    if settings.server.port:
        yield "server", (settings.server.host, settings.server.port)
    if settings.trace.port:
        yield "trace", (settings.trace.host, settings.trace.port)
    if any(table.get("mode") == "webhook" for table in settings.channels.values()):
        yield "http", (settings.http.host, settings.http.port)


def _find_failure(host: str, port: int) -> str:
    """Return why nobody can listen there; empty if somebody can."""
    try:
        for family, kind, number, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
            with socket.socket(family, kind, number) as listener:
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                listener.bind(address)
                listener.listen(1)
    except OSError as error:
        return error.strerror or str(error)
    return ""
