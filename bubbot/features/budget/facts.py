"""The facts on the budget tape besides those of the calls themselves: what the owner was told."""

from __future__ import annotations

from bubbot.ports.usage import CallReserved, CallSettled
from bubbot.tape.fact import Fact


class BudgetWarned(Fact):
    """The owner was warned that a budget is nearly used up.

    Attributes:
        scope: `bot`, `channel`, `chat`, `user`, `job`, `agent` or `model`.
        name: whose budget of that kind it is.
        period: a day or a month.
        measure: `cost` or `tokens`.
        percent: of the limit that was used.
    """

    EVENTS = ("budget/warned",)
    scope: str
    name: str
    period: str
    measure: str
    percent: int

    @property
    def subject(self) -> tuple[str, ...]:
        """The budget, its period and the measure."""
        return self.scope, self.name, self.period, self.measure


class ModelUnpriced(Fact):
    """The owner was warned that a model has no price although a budget in money applies to it."""

    EVENTS = ("budget/unpriced",)
    model: str

    @property
    def subject(self) -> str:
        """The model."""
        return self.model


class ModelOutageReported(Fact):
    """The owner was told that a model refuses every call.

    Attributes:
        model: the model.
        since: when it first did not answer, ISO 8601 in UTC.
    """

    EVENTS = ("budget/outage",)
    model: str
    since: str

    @property
    def subject(self) -> str:
        """The model."""
        return self.model


FACTS: tuple[type[Fact], ...] = (CallReserved, CallSettled, BudgetWarned, ModelUnpriced, ModelOutageReported)
