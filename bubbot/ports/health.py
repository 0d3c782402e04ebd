"""The port for health reports, between chats and the parts that watch the bot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from bubbot.ports.channel import Role


class HealthReport(Protocol):
    """Reports the bot's health, beyond the chat of the sender."""

    async def __call__(self, role: Role, *, direct: bool, own: int = 0) -> Sequence[str]:
        """Return lines for a sender with this role.

        Args:
            role: the sender's role.
            direct: nobody else reads along.
            own: turns that only ask for this report.
        """
        ...


async def report_nothing(role: Role, *, direct: bool, own: int = 0) -> Sequence[str]:  # noqa: ARG001 - the port's signature
    """Report nothing, for bots without a health report."""
    return ()
