"""The settings of the Telegram channel: what is taken, and what is said about what is not."""

from __future__ import annotations

from typing import Any

import pytest

from bubbot.errors import ConfigError
from channels.telegram.settings import TelegramSettings

TOKEN = "4242:SECRET-token_of-the-bot"
HOOK = {"token": TOKEN, "mode": "webhook", "webhook_url": "https://bot.example.org/tg", "webhook_secret": "s" * 20}


def test_a_token_is_enough() -> None:
    settings = TelegramSettings.read("telegram", {"token": TOKEN})
    assert (settings.base_url, settings.base_file_url, settings.is_self_hosted) == (
        "https://api.telegram.org/bot", "https://api.telegram.org/file/bot", False
    )  # fmt: skip
    assert (settings.uses_webhook, settings.poll_timeout, settings.edit_interval, settings.link_previews) == (
        False, 30, 1.5, False
    )  # fmt: skip


def test_text_from_the_environment_is_taken() -> None:
    settings = TelegramSettings.read(
        "telegram",
        {"token": TOKEN, "poll_timeout": "10", "edit_interval": "2.5", "link_previews": "TRUE", "proxy": ""},
    )  # fmt: skip
    assert (settings.poll_timeout, settings.edit_interval, settings.link_previews, settings.proxy) == (
        10,
        2.5,
        True,
        None,
    )


@pytest.mark.parametrize("given", ["http://localhost:8081", "http://localhost:8081/", "http://localhost:8081/bot"])
def test_a_server_of_ones_own(given: str) -> None:
    settings = TelegramSettings.read("telegram", {"token": TOKEN, "base_url": given})
    assert (settings.base_url, settings.base_file_url) == (
        "http://localhost:8081/bot", "http://localhost:8081/file/bot"
    )  # fmt: skip
    assert settings.is_self_hosted
    other = TelegramSettings.read(
        "telegram", {"token": TOKEN, "base_url": given, "base_file_url": "http://files:1/file/bot"}
    )
    assert other.base_file_url == "http://files:1/file/bot"


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({}, "token is not set"),
        ({"token": ""}, "token is not set"),
        ({"token": 5}, "token has to be text"),
        ({"token": "SECRET"}, "token is not a bot's token"),
        ({"token": TOKEN, "mode": "push"}, "mode is 'push' and has to be one of polling, webhook"),
        ({"token": TOKEN, "file_folder": "files"}, "file_folder is 'files' and has to be a whole path"),
        ({"token": TOKEN, "file_folder": "/"}, "file_folder is '/' and has to be a whole path"),
        ({"token": TOKEN, "file_folder": "http://u:SECRET@x"}, "file_folder is 'http://***@x' and has to be a whole path"),
        ({"token": TOKEN, "file_folder": "x" * 99}, f"file_folder is '{'x' * 79}... and has to be a whole path"),
        ({"token": TOKEN, "mode": "http://u:SECRET/@x@x"}, "mode is 'http://***@x' and has to be one of"),
        ({"token": TOKEN, "mode": "x" * 99}, f"mode is '{'x' * 79}... and has to be one of"),
        ({"token": TOKEN, "base_url": "localhost:8081"}, "base_url has to be a whole web address"),
        ({"token": TOKEN, "base_url": "http://x/{token}"}, "base_url has to be a whole web address"),
        ({"token": TOKEN, "proxy": "ftp://SECRET@x"}, "proxy has to be a whole web address"),
        ({"token": TOKEN, "proxy": "http://x:SECRET"}, "proxy has to be a whole web address"),
        ({"token": TOKEN, "poll_timeout": 0}, "poll_timeout is 0 and has to be a whole number from 1 to 50"),
        ({"token": TOKEN, "poll_timeout": 1.5}, "poll_timeout is 1.5 and has to be a whole number from 1 to 50"),
        ({"token": TOKEN, "poll_timeout": "soon"}, "poll_timeout is 'soon'"),
        ({"token": TOKEN, "edit_interval": "nan"}, "edit_interval is 'nan'"),
        ({"token": TOKEN, "edit_interval": True}, "edit_interval is true"),
        ({"token": TOKEN, "link_previews": "maybe"}, "link_previews is 'maybe' and has to be true or false"),
        ({"token": TOKEN, "link_previews": 1}, "link_previews is 1 and has to be true or false"),
        (HOOK | {"webhook_url": ""}, "webhook_url is not set"),
        (HOOK | {"webhook_url": "http://bot.example.org/tg"}, "webhook_url has to be a whole web address such as https"),
        (HOOK | {"webhook_url": "https://bot.example.org:9000/tg"}, "webhook_url has a port that Telegram never calls"),
        (HOOK | {"webhook_secret": ""}, "webhook_secret is not set"),
        (HOOK | {"webhook_secret": "SECRET with space"}, "webhook_secret has to be 8 to 256 characters"),
    ],
)  # fmt: skip
def test_a_wrong_value_is_named_with_its_fix_and_without_secrets(table: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        TelegramSettings.read("work-bot", table)
    assert str(caught.value).startswith(f"[channels.work-bot] {said}")
    assert "SECRET" not in str(caught.value)


def test_a_wrong_server_is_one_error_and_not_also_one_of_the_webhook() -> None:
    with pytest.raises(ConfigError) as caught:
        TelegramSettings.read("tg", HOOK | {"base_url": "nope", "webhook_url": "http://in.house:81/tg"})
    assert str(caught.value).startswith("[channels.tg] base_url has to be")
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("name", "hint"), [("pol_timeout", "did you mean 'poll_timeout'?"), ("pairng", "docs/reference/config.md lists")]
)
def test_a_key_that_nobody_knows_is_refused(name: str, hint: str) -> None:
    with pytest.raises(ConfigError, match=rf"^\[channels\.work-bot\] {name} is not a key .*{hint}"):
        TelegramSettings.read("work-bot", {"token": TOKEN, name: 1})


def test_secrets_are_not_shown() -> None:
    settings = TelegramSettings.read("telegram", HOOK | {"proxy": "http://me:PASSWORD@proxy:1"})
    assert TOKEN not in repr(settings)
    assert "s" * 20 not in repr(settings)
    assert "PASSWORD" not in repr(settings)
