"""The port for health reports, between chats and the parts that watch the bot, and what features report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class NextFiring:
    """The next firing of a job."""

    job: str
    name: str
    session: str
    at: str


@dataclass(frozen=True, slots=True)
class BudgetUsage:
    """The amount spent of a budget in a day or month.

    Attributes:
        scope: the kind of budget.
        name: whose budget of that kind it is.
        period: `2026-11-22` or `2026-11`.
        measure: `cost`, in the currency of `[budget]`, or `tokens`.
        used: the amount spent.
        most: the limit; None if there is none.
    """

    scope: str
    name: str
    period: str
    measure: str
    used: float
    most: float | None = None

    @property
    def is_monthly(self) -> bool:
        """True for a month, false for a day."""
        return len(self.period) == 7


@dataclass(frozen=True, slots=True)
class FeatureProblem:
    """What is wrong with the feature of an installed package.

    Attributes:
        name: that of the feature.
        reason: in English, as its code or bubbot said it.
        at: when that was, ISO 8601; empty if it follows from what is installed.
        is_left_out: the bot goes on without the feature; otherwise one call of its code failed.
    """

    name: str
    reason: str
    at: str = ""
    is_left_out: bool = False


@dataclass(frozen=True, slots=True)
class ModelOutage:
    """A model that does not answer.

    Attributes:
        name: that of the model.
        since: when it first did not answer, ISO 8601.
        newest: when it was last asked, ISO 8601.
        kind: that of the error.
        status: the HTTP status that its provider sent; None if there was none.
    """

    name: str
    since: str
    newest: str
    kind: str
    status: int | None = None
