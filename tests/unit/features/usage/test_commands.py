"""`,usage`: people see what was asked in their chat, owners everything, but not where others read along."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from msgspec import structs

from bubbot.features.budget.budget import BudgetLimits, SpendingLimit
from bubbot.features.budget.report import LimitReporter
from bubbot.features.usage.feature import usage_feature
from bubbot.features.usage.reporter import UsageReporter
from bubbot.models.scripted import ScriptedModel
from bubbot.ports.channel import Role
from bubbot.ports.model import ModelPrice
from bubbot.ports.usage import BudgetSubject, Currency
from bubbot.stores.inmemory import InMemoryStore
from bubbot.tape.entry import event
from bubbot.tape.store import Batch
from bubbot.texts import Texts
from tests.budgets import budget_tape, opened, spend
from tests.doubles import SteppingClock
from tests.turns import Options, running

PRICE = ModelPrice(1e3, 1e3, 500.0)
"""A tenth of a cent for a token."""
PLAN = BudgetLimits(
    {
        ("bot", ""): SpendingLimit(day=10.0),
        ("chat", "test:home"): SpendingLimit(tokens_day=1000),
        ("user", "test:9"): SpendingLimit(day=1.0),
    },
    listed_price=lambda model: PRICE if model == "m" else None,
    reserved_output_tokens=lambda _: 10,
)


@pytest.fixture
async def ledger(memory_store: InMemoryStore) -> UsageReporter:
    """A month in two chats: 300 tokens at home today, 80 of them cached; 150 of a model without a price elsewhere."""
    clock = SteppingClock()
    clock.advance(timedelta(days=-3))
    budget = await opened(memory_store, PLAN, clock=clock)
    await spend(budget, 100, 20, BudgetSubject("test:home", "test:1", turn="t0"))
    clock.advance(timedelta(days=3))
    await spend(budget, 200, 50, BudgetSubject("test:home", "test:1", turn="t1"), cached_tokens=80)
    await spend(budget, 40, 10, BudgetSubject("test:home:7", "test:2", "job-1", "t2"))
    await spend(budget, 100, 50, BudgetSubject("test:far", "test:9", turn="t3"), "own")
    tape = budget_tape(memory_store)
    return UsageReporter(tape, clock, UTC, LimitReporter(tape, PLAN, budget.today))


async def told(
    ledger: UsageReporter,
    text: str,
    role: Role = Role.OWNER,
    language: str = "en",
    store: InMemoryStore | None = None,
    **given: object,
) -> list[str]:
    options = Options(role=role, tools=usage_feature(lambda: ledger).tools, texts=Texts(language))
    async with running(store or InMemoryStore(), ScriptedModel(), options) as bench:
        return (await bench.say(text, **given)).text.splitlines()


async def test_people_see_their_chat_with_its_budget(ledger: UsageReporter) -> None:
    assert await told(ledger, ",usage", Role.MEMBER) == [
        "Today 0.26 USD; 2 answers.",
        "all: 0.26 USD; 2 calls; 240 tokens in (80 cached), 60 out",
        "By model:",
        "  m: 0.26 USD; 2 calls; 240 tokens in (80 cached), 60 out",
        "Budgets:",
        "the chat test:home, 2026-11-21: 300 tokens of 1,000 tokens (30 %)",
    ]


async def named_store() -> InMemoryStore:
    """A store that knows who speaks in the two chats."""
    facts = (
        {
            "channel": "test",
            "chat": "far",
            "session": "test:far",
            "sender": {"id": "9", "name": "Bob"},
            "direct": False,
        },
        {
            "channel": "test",
            "chat": "home",
            "session": "test:home:7",
            "thread": "7",
            "sender": {"id": "2", "name": "Alice"},
            "direct": True,
        },
    )
    store = InMemoryStore()
    await store.append([Batch("bubbot/inbox/test", tuple(event("inbox/received", fact) for fact in facts))])
    return store


async def test_an_owner_reads_names_where_they_are_known(ledger: UsageReporter) -> None:
    """A chat is known by those who speak there, and a group is told no name of another one."""
    text = "\n".join(await told(ledger, ",usage all", store=await named_store(), chat="office"))
    assert text.startswith("So far 0.38 USD; 4 answers; most in Alice on test.")
    for part in ("▓ Alice on test: 0.38 USD", "░ Bob (group on test): ", "▓ Ann: ", "░ Bob: ", "░ Alice: "):
        assert part in text
    assert "the chat Alice on test, 2026-11-21: 300 tokens of 1,000 tokens (30 %)" in text
    assert "the person Bob, 2026-11-21: " in text
    assert "test:1" not in text
    assert "Bob" not in "\n".join(await told(ledger, ",usage all", Role.MEMBER, store=await named_store(), chat="far"))


async def test_a_thread_counts_with_its_chat(ledger: UsageReporter) -> None:
    here = await told(ledger, ",usage", Role.MEMBER)
    assert await told(ledger, ",usage", Role.MEMBER, thread="8") == here
    assert await told(ledger, ",usage", Role.MEMBER, chat="far") != here


async def test_their_month_has_its_days(ledger: UsageReporter) -> None:
    lines = await told(ledger, ",usage month", Role.MEMBER)
    assert lines[0] == "This month 0.38 USD; 3 answers."
    assert [line.split(":")[0].strip() for line in lines[lines.index("By day:") + 1 :][:2]] == [
        "▓▓▓▓░░░░ 2026-11-18",
        "▓▓▓▓▓▓▓▓ 2026-11-21",
    ]
    assert lines[1].startswith("all: 0.38 USD; 3 calls; ")


async def test_the_owner_sees_everything_in_a_direct_chat(ledger: UsageReporter) -> None:
    lines = await told(ledger, ",usage all", chat="office")
    text = "\n".join(lines)
    assert lines[0] == "So far 0.38 USD; 4 answers; most in test:home."
    for part in (
        "By chat:\n  ▓▓▓▓▓▓▓▓ test:home: ",
        "  ░░░░░░░░ test:far: ",
        "By job:\n  job-1: ",
        "By day:\n  ▓▓▓▓░░░░ 2026-11-18: ",
    ):
        assert part in text
    assert "  ░░░░░░░░ own: no known price; 1 call; " in text
    assert "Calls without a known price, counted in tokens alone: 1." in text
    assert "the whole bot, 2026-11-21: 0.26 USD of 10.00 USD (2 %)" in lines
    assert (await told(ledger, ",usage", chat="office"))[0] == (
        "Today 0.26 of 10.00 USD; 3 answers; most in test:home."
    )


async def test_spending_and_its_budget_are_in_the_currency_of_the_reports(ledger: UsageReporter) -> None:
    assert isinstance(ledger.limits, LimitReporter)
    in_euros = structs.replace(ledger, limits=structs.replace(ledger.limits, currency=Currency("EUR", 0.5)))
    assert (await told(in_euros, ",usage", chat="office"))[0] == "Today 0.13 of 5.00 EUR; 3 answers; most in test:home."


async def test_a_sentence_without_prices_counts_tokens(memory_store: InMemoryStore) -> None:
    clock = SteppingClock()
    budget = await opened(memory_store, PLAN, clock=clock)
    await spend(budget, 500, 400, model="own")
    await spend(budget, 20, 0, BudgetSubject("test:home", "test:1", turn="t2"), "other")
    ledger = UsageReporter(budget_tape(memory_store), clock, UTC)
    assert (await told(ledger, ",usage", Role.MEMBER))[0] == "Today 920 tokens; 1 answer; most by own."


async def test_numbers_have_the_marks_of_the_language(memory_store: InMemoryStore) -> None:
    clock = SteppingClock()
    await spend(await opened(memory_store, PLAN, clock=clock), 5000, 400, model="own")
    ledger = UsageReporter(budget_tape(memory_store), clock, UTC)
    lines = await told(ledger, ",usage", language="de")
    assert lines[0].startswith("Heute 5.400 Token; 1 Antwort")
    assert any("5.000 Token gelesen" in line for line in lines)
    assert Currency("EUR").format_amount(Texts("de"), 1234.5) == "1.234,50 EUR"


async def test_sentence_and_bars_are_in_the_language_of_the_chat(ledger: UsageReporter) -> None:
    lines = await told(ledger, ",usage", language="zh", chat="office")
    assert lines[0] == "今天已用 0.26（共 10.00 USD）；回答 3 次；最多的是聊天 test:home。"
    head = lines.index("按聊天：")
    assert lines[head + 1].startswith("  ▓▓▓▓▓▓▓▓ test:home：0.26 USD；")
    assert lines[head + 2].startswith("  ░░░░░░░░ test:far：价格未知；")


async def test_in_a_group_the_owner_sees_what_the_group_may_see(ledger: UsageReporter) -> None:
    text = "\n".join(await told(ledger, ",usage all", direct=False))
    assert "test:far" not in text
    assert "test:1" not in text
    assert "the whole bot" not in text
    assert "By model:\n  m: " in text


async def test_where_nobody_asked_it_says_so(ledger: UsageReporter) -> None:
    assert await told(ledger, ",usage", Role.MEMBER, chat="empty") == ["Today no model was asked."]


async def test_a_period_that_there_is_not_is_named(ledger: UsageReporter) -> None:
    [line] = await told(ledger, ",usage yesterday")
    assert "must be day, month or all" in line


async def test_a_day_is_found_without_reading_what_was_before(memory_store: InMemoryStore) -> None:
    clock = SteppingClock()
    clock.advance(timedelta(days=-1))
    budget = await opened(memory_store, PLAN, clock=clock)
    for _ in range(3):
        await spend(budget, 1, 1)
    clock.advance(timedelta(days=1))
    for _ in range(2):
        await spend(budget, 5, 5)
    ledger = UsageReporter(budget_tape(memory_store), clock, UTC)
    assert (await ledger.read_spending("day")).total.calls == 2
    assert (await ledger.read_spending("all")).total.calls == 5


async def test_calls_of_a_day_count_though_the_clock_was_set_back_to_the_day_before(
    memory_store: InMemoryStore,
) -> None:
    clock = SteppingClock(datetime(2026, 11, 21, 0, 0, 30, tzinfo=UTC))
    budget = await opened(memory_store, PLAN, clock=clock)
    await spend(budget, 5, 5)
    clock.advance(timedelta(minutes=-2))
    await spend(budget, 1, 1)
    clock.advance(timedelta(hours=1))
    await spend(budget, 7, 7)
    ledger = UsageReporter(budget_tape(memory_store), clock, UTC)
    assert (await ledger.read_spending("day")).total.tokens == 24
    assert (await ledger.read_spending("month")).total.tokens == 26


async def test_shards_are_added_up_and_cited_by_name(sharded_store: InMemoryStore) -> None:
    clock = SteppingClock()
    budget = await opened(sharded_store, PLAN, clock=clock)
    for chat in ("home", "far", "home:7"):
        await spend(budget, 5, 5, BudgetSubject(f"test:{chat}", "test:1", turn="t0"))
    tape = budget_tape(sharded_store)
    home, far = (tape.shard(f"test:{chat}").name for chat in ("home", "far"))
    ledger = UsageReporter(tape, clock, UTC, LimitReporter(tape, PLAN, budget.today))
    spending = await ledger.read_spending("day")
    assert (spending.total.calls, spending.by["user"]["test:1"].input_tokens) == (3, 15)
    assert spending.total.reservations == {home: [1, 3], far: [1]}
    assert spending.total.totals().shards == {home: (1, 3), far: (1,)}
    lines = list(ledger.format_report(Texts(), spending, (), 1))
    cited = lines[0].partition("entries ")[2].split(", ")
    assert set(cited) == {f"{home[13:]}#1 … {home[13:]}#3", f"{far[13:]}#1"}
    limits = await told(ledger, ",usage", chat="office")
    assert "the whole bot, 2026-11-21: 0.03 USD of 10.00 USD (0 %)" in limits
    here = list(ledger.format_report(Texts(), await ledger.read_spending("day", "test:home"), (), 1))
    assert here[0].endswith(f"entries {home[13:]}#1 … {home[13:]}#3")


@pytest.mark.parametrize(
    ("nano", "shown"),
    [(0, "0.00"), (1, "0.00"), (12_340_000, "0.01234"), (10**9, "1.00"), (1_234_560_000_000, "1,234.56")],
)
def test_money_is_shown_with_what_matters_of_it(nano: int, shown: str) -> None:
    assert Currency("EUR", 1.0).format_cost(Texts(), nano) == f"{shown} EUR"
    assert Currency("EUR", 0.5).format_cost(Texts(), 2 * nano) == f"{shown} EUR"
