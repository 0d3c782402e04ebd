"""The settings of the Discord channel: what is taken, and what is said about what is not."""

from __future__ import annotations

from typing import Any

import pytest

from bubbot.errors import ConfigError
from channels.discord.settings import DiscordSettings

TOKEN = "MTIzNDU2Nzg5MDEyMzQ1Njc4.SECRET.of-the_bot-SECRET-27chars"


def test_a_token_is_enough() -> None:
    settings = DiscordSettings.read("discord", {"token": TOKEN})
    assert {"channel": settings.channel, **settings.model_dump()} == {
        "channel": "discord", "token": TOKEN, "rest_url": "https://discord.com/api/v10",
        "gateway_url": "wss://gateway.discord.gg", "proxy": None, "content": "all", "edit_interval": 1.5,
        "slash": True, "link_previews": False,
    }  # fmt: skip
    assert not settings.is_self_hosted


def test_text_from_the_environment_is_taken() -> None:
    settings = DiscordSettings.read(
        "discord",
        {"token": f"Bot {TOKEN}\n", "edit_interval": "2.5", "slash": "False", "link_previews": "TRUE", "proxy": "",
         "content": "mentions"},
    )  # fmt: skip
    assert (settings.token, settings.edit_interval, settings.slash, settings.link_previews) == (TOKEN, 2.5, False, True)
    assert (settings.proxy, settings.content) == (None, "mentions")


@pytest.mark.parametrize(
    "given", ["http://localhost:81", "http://localhost:81/", "http://localhost:81/api", "http://localhost:81/api/v10/"]
)
def test_a_server_of_ones_own(given: str) -> None:
    settings = DiscordSettings.read("discord", {"token": TOKEN, "rest_url": given, "gateway_url": "ws://localhost:82/"})
    assert (settings.rest_url, settings.gateway_url) == ("http://localhost:81/api/v10", "ws://localhost:82")
    assert settings.is_self_hosted


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({}, "token is not set"),
        ({"token": " "}, "token is not set"),
        ({"token": 5}, "token has to be text"),
        ({"token": "SECRET"}, "token is not a bot's token"),
        ({"token": f"{TOKEN} {TOKEN}"}, "token is not a bot's token"),
        ({"token": TOKEN, "content": "some"}, "content is 'some' and has to be one of all, mentions"),
        ({"token": TOKEN, "rest_url": "discord.com"}, "rest_url has to be a whole web address"),
        ({"token": TOKEN, "rest_url": "https://x/api/v9"}, "rest_url names v9 of the API: only v10"),
        ({"token": TOKEN, "gateway_url": "https://x"}, "gateway_url has to be a whole web address such as wss://"),
        ({"token": TOKEN, "proxy": "socks5://SECRET@x"}, "proxy has to be a whole web address such as http://"),
        ({"token": TOKEN, "proxy": "http://x:SECRET"}, "proxy has to be a whole web address"),
        ({"token": TOKEN, "edit_interval": "nan"}, "edit_interval is 'nan'"),
        ({"token": TOKEN, "edit_interval": 61}, "edit_interval is 61 and has to be a number from 0 to 60"),
        ({"token": TOKEN, "content": "x" * 500}, f"content is '{'x' * 79}... and has to be one of all, mentions"),
        ({"token": TOKEN, "content": "http://me:SECRET@x"}, "content is 'http://***@x' and has to be one of"),
        ({"token": TOKEN, "slash": "maybe"}, "slash is 'maybe' and has to be true or false"),
        ({"token": TOKEN, "link_previews": 1}, "link_previews is 1 and has to be true or false"),
    ],
)
def test_a_wrong_value_is_named_with_its_fix_and_without_secrets(table: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        DiscordSettings.read("work-bot", table)
    assert str(caught.value).startswith(f"[channels.work-bot] {said}")
    assert "SECRET" not in str(caught.value)


def test_the_representation_holds_no_secret() -> None:
    settings = DiscordSettings.read("discord", {"token": TOKEN, "proxy": "http://user:SECRET@proxy:3128"})
    assert settings.proxy == "http://user:SECRET@proxy:3128"
    assert "SECRET" not in repr(settings)


def test_a_misspelt_key_does_not_pass_for_the_default() -> None:
    with pytest.raises(
        ConfigError, match=r"\[channels.work-bot\] rest_uri is not a key of a Discord channel: did you mean"
    ):
        DiscordSettings.read("work-bot", {"token": TOKEN, "rest_uri": "x"})
    with pytest.raises(ConfigError, match=r"zzz is not a key of a Discord channel: docs/reference"):
        DiscordSettings.read("work-bot", {"token": TOKEN, "zzz": ""})


def test_each_problem_has_a_line() -> None:
    with pytest.raises(ConfigError) as caught:
        DiscordSettings.read("work-bot", {"content": "some", "slash": 1})
    assert len(str(caught.value).splitlines()) == 3
