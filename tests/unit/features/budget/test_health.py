"""What budgets report of their health: money, tokens, and models that do not answer."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest
from msgspec.structs import replace as with_fields

from bubbot.features.budget.budget import BudgetLimits, SpendingLimit
from bubbot.features.budget.health import (
    budget_health,
    budget_usage,
    model_outages,
)
from bubbot.features.budget.limits import ModelFacts
from bubbot.features.budget.outages import ModelOutage, needs_operator
from bubbot.features.budget.settings import BudgetSettings
from bubbot.gateway.health.formatter import HealthFormatter
from bubbot.gateway.health.snapshot import HealthSnapshot, as_json
from bubbot.ports.channel import Role
from bubbot.ports.health import HealthContext
from bubbot.ports.usage import BudgetUsage, Currency, SpentTotal, TotalKey
from bubbot.server.protocol import decode, encode
from bubbot.texts import Texts
from bubbot.texts.catalogue import list_languages
from tests.unit.gateway.health.test_formatter import FULL, NOW


def failing(*outages: ModelOutage, tag: str = "en") -> HealthSnapshot:
    """A bot whose models do not answer."""
    context = HealthContext(Texts(tag), NOW, FULL.zone)
    return with_fields(FULL, channels=FULL.channels[:1], reports=(budget_health(context, (), outages, Currency()),))


def test_of_budgets_that_of_the_bot_is_always_told_and_others_when_they_are_nearly_used_up() -> None:
    spent = {
        TotalKey("bot", "", "2026-11-22"): SpentTotal(1, 500, 2 * 10**9),
        TotalKey("bot", "", "2026-11"): SpentTotal(2, 900, 3 * 10**9),
        TotalKey("bot", "", "2026-10"): SpentTotal(2, 900, 3 * 10**9),
        TotalKey("user", "a:1", "2026-11-22"): SpentTotal(1, 500, 9 * 10**8),
        TotalKey("user", "a:2", "2026-11-22"): SpentTotal(1, 500, 10**8),
        TotalKey("user", "a:1", "2026-10"): SpentTotal(1, 500, 9 * 10**9),
    }
    plan = BudgetLimits({("bot", ""): SpendingLimit(day=10.0), ("user", "each"): SpendingLimit(day=1.0, month=1.0)})
    assert budget_usage(spent, plan, "2026-11-22", usd_rate=0.5) == (
        BudgetUsage("bot", "", "2026-11-22", "cost", 1.0, 5.0),
        BudgetUsage("bot", "", "2026-11-22", "tokens", 500.0),
        BudgetUsage("bot", "", "2026-11", "cost", 1.5),
        BudgetUsage("bot", "", "2026-11", "tokens", 900.0),
        BudgetUsage("user", "a:1", "2026-11-22", "cost", 0.45, 0.5),
    )


def test_the_others_that_are_nearest_to_their_limits_are_told() -> None:
    spent = {
        TotalKey("user", f"a:{number}", "2026-11"): SpentTotal(1, tokens, 0)
        for number, tokens in enumerate((79, 80, 120, 85, 90, 95, 81))
    }
    plan = BudgetLimits({("user", "each"): SpendingLimit(tokens_month=100)})
    near = budget_usage(spent, plan, "2026-11-22")[4:]
    assert near == tuple(
        BudgetUsage("user", f"a:{number}", "2026-11", "tokens", used, 100.0)
        for number, used in ((2, 120.0), (5, 95.0), (4, 90.0), (3, 85.0), (6, 81.0))
    )
    assert budget_usage(dict(list(spent.items())[:2]), plan, "2026-11-22")[4:] == (
        BudgetUsage("user", "a:1", "2026-11", "tokens", 80.0, 100.0),
    )
    plan = BudgetLimits({("user", "each"): SpendingLimit(day=0.0)})  # used up by nothing
    spent = {TotalKey("user", "a:1", "2026-11-22"): SpentTotal()}
    assert budget_usage(spent, plan, "2026-11-22")[4:] == (BudgetUsage("user", "a:1", "2026-11-22", "cost", 0.0, 0.0),)


def test_budgets_are_told_in_money_and_tokens_and_only_that_of_the_bot_is_measured() -> None:
    usages = (
        BudgetUsage("bot", "", "2026-11-22", "cost", 1.0, 5.0),
        BudgetUsage("bot", "", "2026-11-22", "tokens", 1500.0),
        BudgetUsage("bot", "", "2026-11", "cost", 1.5),
        BudgetUsage("bot", "", "2026-11", "tokens", 900.0, 1000.0),
        BudgetUsage("user", "a:1", "2026-11-22", "cost", 0.45, 0.5),
    )
    health = budget_health(HealthContext(Texts(), NOW, FULL.zone), usages, (), Currency("EUR", 0.5))
    (row,) = health.rows
    assert row.lines == (
        "the whole bot, today: 1.00 EUR of 5.00 EUR; 1,500 tokens, no limit",
        "the whole bot, this month: 1.50 EUR, no limit; 900 tokens of 1,000 tokens",
        "the person a:1, today: 0.45 EUR of 0.50 EUR",
    )
    measured = [(sample.name.rpartition("_")[2], sample.value, sample.labels) for sample in health.samples]
    assert measured == [
        ("spent", 1.0, ("day", "cost")), ("limit", 5.0, ("day", "cost")), ("spent", 1500.0, ("day", "tokens")),
        ("spent", 1.5, ("month", "cost")), ("spent", 900.0, ("month", "tokens")), ("limit", 1000.0, ("month", "tokens")),
    ]  # fmt: skip


class TestModelsThatDoNotAnswer:
    TROUBLE = ModelOutage("openai/x", "2026-11-22T10:00:00+00:00", "2026-11-22T11:59:00+00:00", "model_refused", 401)

    def test_the_bot_is_not_healthy(self) -> None:
        assert failing().is_healthy
        assert as_json(failing())["failing"] == []
        assert not failing(self.TROUBLE).is_healthy
        assert as_json(failing(self.TROUBLE))["failing"][0]["name"] == "openai/x"

    def test_it_comes_whole_over_the_socket(self) -> None:
        sent = failing(self.TROUBLE, with_fields(self.TROUBLE, status=None))
        assert decode(json.loads(json.dumps(encode(sent))), HealthSnapshot) == sent

    @pytest.mark.parametrize("tag", list_languages("bubbot.texts"))
    @pytest.mark.parametrize(
        ("kind", "status"),
        [
            ("model_refused", 401), ("model_refused", 402), ("model_refused", 404), ("model_refused", 400), ("model_refused", None),
            ("model_unavailable", 503), ("model_unavailable", None), ("model_rate_limited", 429), ("empty_answer", None),
            ("model_unconfigured", None), ("model_key_missing", None), ("internal", None),
        ],
    )  # fmt: skip
    def test_the_line_names_the_model_since_when_and_why(self, tag: str, kind: str, status: int | None) -> None:
        one = with_fields(self.TROUBLE, kind=kind, status=status)
        (row,) = [
            row for row in HealthFormatter(Texts(tag), failing(one, tag=tag)).rows() if "openai/x" in row.lines[0]
        ]
        assert "2026-11-22 11:00:00" in row.lines[0]  # by the clock of Berlin
        assert str(status if status in (400, 503) else "") in row.lines[0]

    def test_refusals_for_one_reason_have_one_sentence(self) -> None:
        def why(status: int | None) -> str:
            rows = HealthFormatter(Texts(), failing(with_fields(self.TROUBLE, status=status))).rows()
            (line,) = [row.lines[0] for row in rows if "openai/x" in row.lines[0]]
            return line.replace(str(status), "")

        reasons = [{why(status) for status in group} for group in ((401, 403), (402, 429), (404, 410), (400,), (None,))]
        assert [len(each) for each in reasons] == [1] * 5
        assert len(set().union(*reasons)) == 5

    @pytest.mark.parametrize(
        ("kind", "status", "needed"),
        [
            ("model_unconfigured", None, True), ("model_key_missing", None, True), ("model_refused", 401, True),
            ("model_refused", 400, False), ("model_refused", None, False), ("model_unavailable", 401, False),
            ("model_rate_limited", 429, False), ("empty_answer", None, False),
        ],
    )  # fmt: skip
    def test_an_operator_is_needed_where_waiting_does_not_help(
        self, kind: str, status: int | None, needed: bool
    ) -> None:
        assert needs_operator(ModelOutage("m", "", "", kind, status)) is needed

    def test_admins_are_told_in_chats(self) -> None:
        told = HealthFormatter(Texts(), failing(self.TROUBLE)).in_chat(Role.ADMIN, direct=False)
        assert any("openai/x has not answered since" in line for line in told)

    def test_a_model_that_no_setting_names_is_left_out_after_a_day(self) -> None:
        calls = {"a/b": ModelOutage("a/b", "2026-11-20T10:00:00+00:00", "2026-11-21T10:00:00+00:00", "model_refused")}
        named, other = ModelFacts(name="a/b"), ModelFacts(fallback=("c/d",))
        assert model_outages(calls, {}, BudgetSettings(), named, NOW)
        assert not model_outages(calls, {}, BudgetSettings(), other, NOW)
        assert model_outages(calls, {}, BudgetSettings(), other, "2026-11-22T09:00:00+00:00")

    def test_a_model_that_no_setting_names_is_left_out_once_one_of_the_settings_answers(self) -> None:
        at = "2026-11-21T10:00:00+00:00"
        calls = {"a/b": ModelOutage("a/b", at, at, "model_refused")}

        def outages(answered: Mapping[str, str], configured: str) -> tuple[ModelOutage, ...]:
            return model_outages(
                calls, answered, BudgetSettings(), ModelFacts(name=configured), "2026-11-21T12:00:00+00:00"
            )

        before, after = "2026-11-21T09:59:00+00:00", "2026-11-21T10:01:00+00:00"
        assert outages({"c/d": before, "e/f": after}, "c/d")
        assert not outages({"c/d": after}, "c/d")
        assert outages({"c/d": after}, "a/b")
