"""What differs between two settings, and what of it waits for the next start."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import SecretStr

from bubbot.app.own_features import settings_schema
from bubbot.app.settings import describe_settings
from bubbot.features.memory.settings import MemorySettings
from bubbot.settings.diff import RESTART_REQUIRED, apply_reloadable, compare, is_restart_required, redacted_values
from bubbot.settings.loader import BotSettings, Settings


def settings(**sections: Any) -> Settings:
    return settings_schema().model(**sections)


def test_nothing_differs_from_itself() -> None:
    one = settings(model={"name": "openai/a", "api_key": "sk-planted"}, channels={"telegram": {"token": "1:planted"}})
    assert not compare(one, one)


def test_every_key_that_differs_is_named_with_its_path() -> None:
    old = settings(channels={"telegram": {"token": "1:a", "members": [1]}}, budget={"day": 5.0})
    new = settings(
        channels={"telegram": {"token": "1:b", "members": [1]}, "discord": {"token": "c"}},
        budget={"day": 5.0, "users": {"each": {"day": 1.0}}},
        model={"api_key": SecretStr("sk-1")},
    )
    assert compare(old, new).reloadable == (
        "budget.users.each.day",
        "channels.discord.kind",
        "channels.discord.token",
        "channels.telegram.token",
        "model.api_key",
    )


def test_what_is_read_at_the_start_alone_is_told_apart_and_left_as_it_is() -> None:
    old = settings(bot={"name": "old"})
    new = settings(bot={"name": "new", "timezone": "Europe/Berlin"}, http={"port": 9}, memory={"recent_days": 3})
    found = compare(old, new)
    assert found.reloadable == ("bot.name", "memory.recent_days")
    assert found.restart_required == ("bot.timezone", "http.port")
    taken = apply_reloadable(old, new)
    assert taken.bot == BotSettings(name="new")
    assert taken.http == old.http
    assert taken.section(MemorySettings).recent_days == 3


def test_every_name_of_what_waits_is_one_there_is() -> None:
    known = {one.section for one in describe_settings()} | {f"{one.section}.{one.key}" for one in describe_settings()}
    assert known >= RESTART_REQUIRED
    assert all(is_restart_required(name) for name in RESTART_REQUIRED)
    assert not is_restart_required("model.name")


@pytest.mark.parametrize("key", ["token", "webhook_secret"])
def test_facts_show_what_is_set_and_no_secret(key: str) -> None:
    shown = redacted_values(
        settings(
            bot={"name": "ada", "persona": "x" * 1000},
            model={"api_key": "sk-planted-1", "api_base": "http://me:planted-2@localhost/"},
            channels={"telegram": {key: "4242:planted-3", "owners": [42], "live": False}},
        )
    )
    assert "planted" not in str(shown)
    assert shown["bot.name"] == "ada"
    assert len(shown["bot.persona"]) < 300
    assert shown["channels.telegram.owners"] == [42]
    assert shown["channels.telegram.live"] is False
    assert "memory.recent_days" not in shown
