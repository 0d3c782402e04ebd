"""The ports the bot would listen on: whether another program has them."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

from bubbot.home import Home
from bubbot.ops.doctor.finding import Finding, edit
from bubbot.ops.doctor.home import is_held
from bubbot.settings.loader import Settings


def check_ports(settings: Settings, home: Home, config: Path) -> Iterator[Finding]:
    """Try each configured port for a moment. While a bot runs for this home it has them itself, and nothing is tried."""
    wanted = dict(_configured(settings))
    if not wanted or is_held(home):
        return
    refused = {section: reason for section, (host, port) in wanted.items() if (reason := _refusal(host, port))}
    for section, reason in refused.items():
        host, port = wanted[section]
        cause = (
            f"[{section}] port {port} on {host} cannot be listened on ({reason}), and the bot does not start so: choose "
            "another port, or end the program that has it."
        )
        yield Finding("port.used", "problem", cause, edit(config))
    if not refused:
        words = ", ".join(f"{port} of [{section}]" for section, (_, port) in wanted.items())
        yield Finding("port.ok", "ok", f"Nobody else listens on the port {words}.")


def _configured(settings: Settings) -> Iterator[tuple[str, tuple[str, int]]]:
    if settings.health.port:
        yield "health", (settings.health.host, settings.health.port)
    if any(table.get("mode") == "webhook" for table in settings.channels.values()):
        yield "http", (settings.http.host, settings.http.port)


def _refusal(host: str, port: int) -> str:
    """Why nobody can listen there; empty if somebody can."""
    try:
        for family, kind, number, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
            with socket.socket(family, kind, number) as tried:
                tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    tried.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                tried.bind(address)
                tried.listen(1)
    except OSError as error:
        return error.strerror or str(error)
    return ""
