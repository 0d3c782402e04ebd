"""How the bot is, as whoever may ask for it is told: the port between chats and what looks over the whole bot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from bubbot.ports.channel import Role


class HealthReport(Protocol):
    """Tells how the bot is, beyond the one chat in which somebody asks."""

    async def __call__(self, role: Role, *, direct: bool, own: int = 0) -> Sequence[str]:
        """Lines for somebody of this role; `direct`: nobody else reads along; `own`: turns that only ask for this."""
        ...


async def no_report(role: Role, *, direct: bool, own: int = 0) -> Sequence[str]:  # noqa: ARG001 - the port's signature
    """For bots that nobody looks over."""
    return ()
