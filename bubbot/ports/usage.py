"""The cost of model calls: their subjects, and the facts about reservations and spending on the tape `bubbot/budget`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

from msgspec import UNSET, Struct, UnsetType

from bubbot.tape.fact import Fact
from bubbot.tape.references import EntryId, SessionId
from bubbot.texts import Texts

BUDGET_TAPE = "bubbot/budget"
COST, TOKENS = "cost", "tokens"

BOT_SCOPE, CHANNEL_SCOPE, CHAT_SCOPE, USER_SCOPE, JOB_SCOPE, AGENT_SCOPE, MODEL_SCOPE = (
    "bot",
    "channel",
    "chat",
    "user",
    "job",
    "agent",
    "model",
)
"""The scopes of a budget: all calls, or those of one channel, chat, person, job, agent or model."""


class BudgetSubject(Struct, frozen=True):
    """The subject of a model call.

    Attributes:
        session: of the call.
        user: the person, as `channel:id`.
        job: the job that began the turn; empty for none.
        turn: in the session.
        agent: the agent that answers it; empty for the bot itself.
    """

    session: str
    user: str = ""
    job: str = ""
    turn: str = ""
    agent: str = ""

    @property
    def chat(self) -> str:
        """The chat, over all its threads."""
        return ":".join(self.session.split(":", 2)[:2])

    @property
    def channel(self) -> str:
        """The channel's name."""
        return self.session.partition(":")[0]


def user_key(session: str, sender: str) -> str:
    """Return the budget name of a person on the channel of a session."""
    return f"{session.partition(':')[0]}:{sender}" if sender else ""


class TotalKey(NamedTuple):
    """The key of a total: a scope, the name in it, and a day (`2026-11-21`) or month (`2026-11`)."""

    scope: str
    name: str
    period: str


class SpentTotal(NamedTuple):
    """A total: calls, tokens, and the cost in billionths of a US dollar."""

    calls: int = 0
    tokens: int = 0
    cost_nanousd: int = 0

    def add(self, other: SpentTotal) -> SpentTotal:
        return SpentTotal(self.calls + other.calls, self.tokens + other.tokens, self.cost_nanousd + other.cost_nanousd)


ZERO_SPENT = SpentTotal()


class CountedCall(Fact, kw_only=True):
    """What both facts about a model call say.

    Attributes:
        call: the id of the call.
        session: of the call.
        turn: in the session; empty for a call before a turn.
        user: the person, as `channel:id`.
        job: the job that began the turn.
        agent: the agent that called; absent for the bot itself, and in earlier versions.
        model: the model.
        day: in the deployment's time zone.
        input_tokens: of the request.
        output_tokens: of the answer.
        nano: billionths of a US dollar; None without a price.
    """

    call: str
    session: SessionId
    turn: str
    user: str
    job: str | UnsetType = UNSET
    agent: str | UnsetType = UNSET
    model: str
    day: str
    input_tokens: int
    output_tokens: int
    nano: int | None

    @property
    def subject(self) -> str:
        """The call."""
        return self.call

    @property
    def payer(self) -> BudgetSubject:
        """The session, person, job, turn and agent of the call."""
        return BudgetSubject(self.session, self.user, self.job or "", self.turn, self.agent or "")

    @property
    def tokens(self) -> int:
        """The tokens of request and answer."""
        return self.input_tokens + self.output_tokens

    def scopes(self) -> list[tuple[str, str]]:
        """Return the scopes whose budgets include the call."""
        payer = self.payer
        scopes = (
            (CHANNEL_SCOPE, payer.channel),
            (CHAT_SCOPE, payer.chat),
            (USER_SCOPE, payer.user),
            (JOB_SCOPE, payer.job),
            (AGENT_SCOPE, payer.agent),
        )
        return [(BOT_SCOPE, ""), *[scope for scope in scopes if scope[1]], (MODEL_SCOPE, self.model)]

    def totals(self) -> Iterator[TotalKey]:
        """Yield the totals that include the call."""
        for scope, name in self.scopes():
            yield TotalKey(scope, name, self.day)
            yield TotalKey(scope, name, self.day[:7])

    def counts_towards(self, key: TotalKey) -> bool:
        """Return true if a total includes the call: like `key in totals()`, but faster."""
        if key.period not in (self.day, self.day[:7]):
            return False
        return key.scope == BOT_SCOPE or (key.scope, key.name) in self.scopes()


class CallReserved(CountedCall, kw_only=True):
    """A model call may begin. The tokens and the cost are an upper estimate.

    Attributes:
        epoch: of the lease of the session; absent outside of turns, and on older tapes.
    """

    EVENTS = ("budget/reserved",)
    epoch: int | UnsetType = UNSET


class CallError(Struct, frozen=True, kw_only=True):
    """Why a provider answered nobody.

    Attributes:
        kind: the kind of the error.
        at: when, ISO 8601 in UTC.
        status: the HTTP status that the provider sent.
    """

    kind: str
    at: str
    status: int | UnsetType | None = UNSET


class CallSettled(CountedCall, kw_only=True):
    """What a model call took.

    Attributes:
        cached_tokens: input tokens that the provider had cached.
        status: `answered`, `failed`, `stopped`, or `unknown` if the process ended in the call, which counts in full then.
        epoch: see `CallReserved`.
        asked: when the call began, ISO 8601 in UTC, if nothing was reserved for it.
        reserved: the entry of its reservation.
        requested: the model that was asked first, if a fallback answered.
        error: why it failed, if the provider was asked.
        estimated: it was cut off, and the tokens are an estimate.
    """

    EVENTS = ("budget/settled",)
    cached_tokens: int
    status: str
    epoch: int | UnsetType = UNSET
    asked: str | UnsetType = UNSET
    reserved: EntryId | UnsetType = UNSET
    requested: str | UnsetType = UNSET
    error: CallError | UnsetType = UNSET
    estimated: bool | UnsetType = UNSET


def budget_owner_text(texts: Texts, scope: str, name: str) -> str:
    """Name the owner of a budget, for people."""
    match scope:
        case "bot":
            return texts.say("whose_bot")
        case "channel":
            return texts.say("whose_channel", name=name)
        case "chat":
            return texts.say("whose_chat", name=name)
        case "user":
            return texts.say("whose_user", name=name)
        case "job":
            return texts.say("whose_job", name=name)
        case "agent":
            return texts.say("whose_agent", name=name)
    return texts.say("whose_model", name=name)


class Currency(Struct, frozen=True):
    """The currency of reports, and the price of a US dollar in it."""

    name: str = "USD"
    usd_rate: float = 1.0

    def format_cost(self, texts: Texts, cost_nanousd: int) -> str:
        """Format money for people: two decimals, more for small amounts."""
        return self.format_amount(texts, cost_nanousd / 10**9 * self.usd_rate)

    def format_amount(self, texts: Texts, amount: float) -> str:
        """Format an amount of this currency for people."""
        return texts.say("usage_cost", amount=texts.format_number(round_amount(amount)), currency=self.name)


def round_amount(amount: float) -> str:
    """Format an amount of money without its currency."""
    number = f"{amount:,.2f}" if amount >= 1 or not amount else f"{amount:.6f}".rstrip("0")
    integer, _, decimals = number.partition(".")
    return f"{integer}.{decimals:0<2}"


class BudgetUsage(Struct, frozen=True):
    """The amount spent of a budget in a day or month.

    Attributes:
        scope: the kind of budget.
        name: whose budget of that kind it is.
        period: `2026-11-22` or `2026-11`.
        measure: `cost` or `tokens`.
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
        return len(self.period) == 7

    @property
    def is_used_up(self) -> bool:
        """True if nothing is left of the limit."""
        return self.most is not None and self.used >= self.most


class ReportsLimits(Protocol):
    """Reports the limits of budgets. Amounts are in US dollars or tokens."""

    @property
    def currency(self) -> Currency: ...

    async def read_limits(self, scopes: Sequence[tuple[str, str]] | None = None) -> list[BudgetUsage]:
        """Return the limits of these scopes for today and this month; None: all scopes with spending."""
        ...

    def find_cost_limit(self, scope: str, name: str, period: str) -> float | None:
        """Return the limit for a day or month, as in `TotalKey`; None without one."""
        ...


class SettlesCalls(Protocol):
    """Settles model calls.

    Attributes:
        on_call_settled: called with each ended call.
    """

    on_call_settled: Callable[[CallSettled], None]
