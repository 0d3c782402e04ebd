"""What model calls take: who calls, what is reserved and spent. The facts of it are on the tape `bubbot/budget`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

from bubbot.records import dataclass
from bubbot.tape.entry import JsonObject
from bubbot.texts import Texts

BUDGET_TAPE = "bubbot/budget"
RESERVED = "budget/reserved"
SETTLED = "budget/settled"
COST, TOKENS = "cost", "tokens"

BOT_SCOPE, CHANNEL_SCOPE, CHAT_SCOPE, USER_SCOPE, JOB_SCOPE, MODEL_SCOPE = (
    "bot",
    "channel",
    "chat",
    "user",
    "job",
    "model",
)
"""The scopes of a budget: all calls, or those of one channel, chat, person, job or model."""


@dataclass(frozen=True, slots=True)
class BudgetSubject:
    """The subject of a model call.

    Attributes:
        session: of the call.
        user: the person, as `channel:id`.
        job: the job that began the turn; empty if none did.
        turn: in the session.
    """

    session: str
    user: str = ""
    job: str = ""
    turn: str = ""

    @property
    def chat(self) -> str:
        """The chat, over all its threads."""
        return ":".join(self.session.split(":", 2)[:2])

    @property
    def channel(self) -> str:
        """The channel's name."""
        return self.session.partition(":")[0]


def user_key(session: str, sender: str) -> str:
    """Return a person on the channel of a session as budgets name them."""
    return f"{session.partition(':')[0]}:{sender}" if sender else ""


class TotalKey(NamedTuple):
    """The key of a total: a scope, the name in it, and a day (`2026-11-21`) or month (`2026-11`)."""

    scope: str
    name: str
    period: str


class SpentTotal(NamedTuple):
    """A total: calls, tokens, and the cost in billionths of a US dollar. A start makes one for each chat and person."""

    calls: int = 0
    tokens: int = 0
    cost_nanousd: int = 0

    def add_call(self, tokens: int, cost_nanousd: int | None) -> SpentTotal:
        """Add one call; a call without a known price costs nothing here."""
        return SpentTotal(self.calls + 1, self.tokens + tokens, self.cost_nanousd + (cost_nanousd or 0))

    def add(self, other: SpentTotal) -> SpentTotal:
        """Add another total."""
        return SpentTotal(self.calls + other.calls, self.tokens + other.tokens, self.cost_nanousd + other.cost_nanousd)


ZERO_SPENT = SpentTotal()


@dataclass(frozen=True, slots=True)
class Reservation:
    """The estimated upper limit of a call.

    Attributes:
        call: the id of the call.
        subject: the subject.
        model: the requested model.
        day: of the call, in the deployment's time zone.
        input: tokens of the request.
        output: tokens reserved for the answer.
        cost_nanousd: billionths of a US dollar; None without a price.
        entry: the id on the tape; 0 before it has one.
    """

    call: str
    subject: BudgetSubject
    model: str
    day: str
    input: int
    output: int
    cost_nanousd: int | None
    entry: int = 0

    @property
    def tokens(self) -> int:
        """The tokens of the request and those reserved for the answer."""
        return self.input + self.output

    def scopes(self) -> list[tuple[str, str]]:
        """Return the scopes whose budgets the call counts towards."""
        payer = self.subject
        scopes = (
            (CHANNEL_SCOPE, payer.channel),
            (CHAT_SCOPE, payer.chat),
            (USER_SCOPE, payer.user),
            (JOB_SCOPE, payer.job),
        )
        return [(BOT_SCOPE, ""), *[scope for scope in scopes if scope[1]], (MODEL_SCOPE, self.model)]

    def totals(self) -> Iterator[TotalKey]:
        """Yield the totals that the call counts towards."""
        for scope, name in self.scopes():
            yield TotalKey(scope, name, self.day)
            yield TotalKey(scope, name, self.day[:7])

    def counts_towards(self, key: TotalKey) -> bool:
        """Return true if the call counts towards a total: like `key in totals()`, but faster."""
        if key.period not in (self.day, self.day[:7]):
            return False
        return key.scope == BOT_SCOPE or (key.scope, key.name) in self.scopes()

    def as_json(self) -> dict[str, Any]:
        """Build the data of its event."""
        payer = self.subject
        data: dict[str, Any] = {"call": self.call, "session": payer.session, "turn": payer.turn, "user": payer.user}
        if payer.job:
            data["job"] = payer.job
        data |= {"model": self.model, "day": self.day, "input_tokens": self.input, "output_tokens": self.output}
        return data | {"nano": self.cost_nanousd}


def reservation_from(data: JsonObject, entry: int) -> Reservation:
    """Read a reservation from the data of its event."""
    payer = BudgetSubject(data["session"], data["user"], data.get("job", ""), data["turn"])
    tokens = data["input_tokens"], data["output_tokens"]
    return Reservation(data["call"], payer, data["model"], data["day"], *tokens, data["nano"], entry)


class FailingModel(NamedTuple):
    """A model that was called and has not answered since.

    Attributes:
        name: of the model.
        since: when the first of these calls failed, ISO 8601 in UTC.
        newest: when the newest of them failed, ISO 8601 in UTC.
        kind: of the newest error.
        status: the HTTP status of the newest error; None if there was none.
    """

    name: str
    since: str
    newest: str
    kind: str
    status: int | None = None


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
    return texts.say("whose_model", name=name)


@dataclass(frozen=True, slots=True)
class Currency:
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


class SettlesCalls(Protocol):
    """Settles model calls.

    Attributes:
        on_call_settled: called with each call that is over: its final usage, and how it ended.
    """

    on_call_settled: Callable[[Reservation, str], None]
