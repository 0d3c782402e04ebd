"""What the settings mean for budgets: limits in dollars, prices, and the tokens an answer is reckoned at."""

from __future__ import annotations

from pathlib import Path

import pytest

from bubbot.app.budget import model_facts
from bubbot.app.settings import load
from bubbot.errors import ConfigError
from bubbot.features.budget.budget import BudgetLimits, SpendingLimit
from bubbot.features.budget.limits import budget_limits, message_rates
from bubbot.features.budget.settings import BudgetSettings, PersonLimitSettings
from bubbot.ports.model import ModelPrice, Usage


def planned(home: Path, text: str) -> BudgetLimits:
    (home / "config.toml").write_text(text)
    settings = load(home=home)
    return budget_limits(settings.section(BudgetSettings), model_facts(settings))


def test_nothing_is_limited_where_nothing_is_set(tmp_path: Path) -> None:
    made = planned(tmp_path, "")
    assert made.find_limit("bot", "") is None
    assert (made.find_limit("user", "telegram:1"), made.warn_at) == (None, 0.8)


def test_limits_are_by_scope_and_name(tmp_path: Path) -> None:
    made = planned(
        tmp_path,
        "[budget]\nday = 5\ntokens_month = 7\n[budget.users.each]\nmonth = 1.5\n[budget.users.'telegram:1']\nday = 2\n"
        "[budget.chats.'telegram:-100']\nday = 3\n[budget.channels.telegram]\ntokens_day = 4\n[budget.jobs.each]\nday = 0\n"
        "[budget.models.'openai/gpt-4o']\nmonth = 6\n",
    )
    assert made.find_limit("bot", "") == SpendingLimit(day=5, tokens_month=7)
    assert made.find_limit("user", "telegram:2") == SpendingLimit(month=1.5)
    assert made.find_limit("user", "telegram:1") == SpendingLimit(day=2)
    assert made.find_limit("chat", "telegram:-100") == SpendingLimit(day=3)
    assert made.find_limit("chat", "telegram:2") is None
    assert made.find_limit("channel", "telegram") == SpendingLimit(tokens_day=4)
    assert made.find_limit("job", "any") == SpendingLimit(day=0)
    assert made.find_limit("model", "openai/gpt-4o") == SpendingLimit(month=6)


def test_rates_are_those_of_people_and_chats_that_have_one(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(
        "[budget.users.each]\nper_minute = 3\n[budget.users.'telegram:1']\nday = 2\n[budget.chats.'telegram:-1']\nper_hour = 9\n"
    )
    assert message_rates(load(home=tmp_path).section(BudgetSettings)) == {
        ("user", "each"): PersonLimitSettings(per_minute=3), ("chat", "telegram:-1"): PersonLimitSettings(per_hour=9),
    }  # fmt: skip


def test_a_chat_that_moved_has_the_limit_of_each_of_its_ids(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("[budget.chats.'telegram:-1001']\nday = 3\n[budget.chats.each]\nday = 9\n")
    settings = load(home=tmp_path)
    moved = {"telegram:-1": "telegram:-1001"}
    made = budget_limits(
        settings.section(BudgetSettings), model_facts(settings), lambda session: moved.get(session, session)
    )
    assert [made.find_limit("chat", f"telegram:{chat}") for chat in (-1, -1001, -2)] == [
        SpendingLimit(day=3), SpendingLimit(day=3), SpendingLimit(day=9),
    ]  # fmt: skip


def test_another_currency_is_reckoned_in_dollars(tmp_path: Path) -> None:
    text = '[budget]\ncurrency = "EUR"\nusd_rate = 0.5\nday = 5\n[budget.models.m]\ninput_price = 1\noutput_price = 2\n'
    made = planned(tmp_path, text)
    assert made.find_limit("bot", "") == SpendingLimit(day=10)
    assert made.configured_price("m") == ModelPrice(2, 4)


def test_another_currency_without_its_dollar_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="currency is 'EUR', and usd_rate is not set"):
        planned(tmp_path, '[budget]\ncurrency = "EUR"\n')


def test_a_price_that_was_set_goes_before_the_list(tmp_path: Path) -> None:
    text = "[budget.models.'openai/gpt-4o']\ninput_price = 1\noutput_price = 2\ncached_price = 0.1\n"
    made = planned(tmp_path, text)
    assert made.find_price("openai/gpt-4o") == ModelPrice(1, 2, 0.1)
    assert made.find_price("openai/gpt-4o-mini") == ModelPrice(0.15, 0.6, 0.075)
    assert (made.find_price("local"), made.find_price("nobody/knows")) == (ModelPrice(0.0, 0.0), None)


def test_a_price_for_each_is_for_those_without_their_own(tmp_path: Path) -> None:
    text = "[budget.models.each]\ninput_price = 1\noutput_price = 2\n[budget.models.'openai/gpt-4o']\nday = 1\n"
    assert planned(tmp_path, text).find_price("openai/gpt-4o") == ModelPrice(1, 2)


def test_what_sits_at_an_own_address_has_no_price_of_the_list(tmp_path: Path) -> None:
    made = planned(tmp_path, '[model]\nname = "openai/gpt-4o"\napi_base = "http://localhost:1/v1"\n')
    assert made.find_price("openai/gpt-4o") is None
    assert made.find_price("anthropic/claude-sonnet-4-5") is not None


def test_a_provider_behind_a_proxy_keeps_its_price(tmp_path: Path) -> None:
    made = planned(tmp_path, '[model]\nname = "anthropic/claude-sonnet-4-5"\napi_base = "http://localhost:1"\n')
    assert made.find_price("anthropic/claude-sonnet-4-5") == ModelPrice(3.0, 15.0, 0.3)


def test_what_is_reserved_is_the_price_of_the_dearest_model_that_may_answer(tmp_path: Path) -> None:
    text = (
        "[model]\nname = 'x/first'\nfallback = ['x/dear', 'x/unknown']\n"
        "[budget.models.'x/first']\ninput_price = 1\noutput_price = 1\n"
        "[budget.models.'x/dear']\ninput_price = 3\noutput_price = 3\n"
    )
    made = planned(tmp_path, text)
    assert made.max_cost("x/first", Usage(10, 10)) == 60_000
    assert made.max_cost("x/unknown", Usage(10, 10)) == 60_000
    assert made.max_cost("scripted", Usage(10, 10)) is None


def test_what_an_answer_is_reckoned_at(tmp_path: Path) -> None:
    assert planned(tmp_path, "").reserved_output_tokens("openai/gpt-4o") == 4096
    assert planned(tmp_path, "").reserved_output_tokens("nobody/knows") == 4096
    assert planned(tmp_path, "[model]\nmax_tokens = 100\n").reserved_output_tokens("openai/gpt-4o") == 100
    assert (
        planned(tmp_path, "[model]\nmax_tokens = 100\n[budget]\nreserved_output_tokens = 9\n").reserved_output_tokens(
            "x"
        )
        == 9
    )


def test_the_environment_sets_tables_as_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BUBBOT_BUDGET__DAY", "2.5")
    monkeypatch.setenv("BUBBOT_BUDGET__USERS", '{"each": {"day": "0.5"}}')
    made = planned(tmp_path, "")
    assert (made.find_limit("bot", ""), made.find_limit("user", "telegram:1")) == (
        SpendingLimit(day=2.5),
        SpendingLimit(day=0.5),
    )
    monkeypatch.setenv("BUBBOT_BUDGET__USERS", "{nonsense")
    with pytest.raises(ConfigError, match=r"\[budget\] users is '{nonsense', but must be tables such as"):
        planned(tmp_path, "")
