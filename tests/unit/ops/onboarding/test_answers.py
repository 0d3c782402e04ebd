"""What answers `bubbot init` takes, and what it says to the others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bubbot.errors import ConfigError
from bubbot.ops.onboarding import answers

TOKEN = "4242:SECRET-token_of-the-bot"


@pytest.mark.parametrize(
    "pasted",
    [
        TOKEN,
        f"  {TOKEN}\n",
        f"<{TOKEN}>",
        f'"{TOKEN}"',
        f"Bot {TOKEN}",
        f"Bot <{TOKEN}>",
        f"`bot {TOKEN}`",
        f"token: {TOKEN}",
    ],
)
def test_a_token_is_found_in_what_is_pasted_around_it(pasted: str) -> None:
    assert answers.parse_token(pasted) == TOKEN


@pytest.mark.parametrize(
    "pasted", ["", "<>", "'", "4242:SEC RET", "4242:SEC\nRET", "4242:\x1b[2J", "4242:SEC\u200bRET", "\ud800x"]
)
def test_a_token_that_is_none_is_refused_and_not_shown(pasted: str) -> None:
    with pytest.raises(ConfigError) as refused:
        answers.parse_token(pasted)
    assert "SEC" not in str(refused.value)


@pytest.mark.parametrize(
    ("typed", "near"),
    [
        ("Berlin", "Europe/Berlin"),
        ("Europe/Berln", "Europe/Berlin"),
        ("europ/berlin", "Europe/Berlin"),
        ("new york", "America/New_York"),
        ("Asia/Shangai", "Asia/Shanghai"),
        ("Tokio", "Asia/Tokyo"),
    ],
)
def test_a_time_zone_that_is_misspelt_is_refused_with_the_near_ones(typed: str, near: str) -> None:
    with pytest.raises(ConfigError, match=f"did you mean .*{near}"):
        answers.parse_zone(typed)


def test_a_time_zone_is_taken_in_any_case_and_one_that_is_like_nothing_gets_an_example() -> None:
    assert answers.parse_zone(" europe/BERLIN ") == "Europe/Berlin"
    for odd in ("qqqqqqqqq", "../../etc/passwd", "x" * 5000, ""):
        with pytest.raises(ConfigError, match="time zone"):
            answers.parse_zone(odd)


@pytest.mark.parametrize("typed", ["@ada", "ada", "telegram:@ada", "４２", "0", "-42", "1.5"])
def test_an_owner_is_a_number_and_no_name(typed: str) -> None:
    with pytest.raises(ConfigError):
        answers.parse_person(typed)


def test_a_name_as_an_owner_is_refused_with_the_reason() -> None:
    with pytest.raises(ConfigError, match="anybody can take a username"):
        answers.parse_person("@ada")
    with pytest.raises(ConfigError, match="anybody can take a username"):
        answers.parse_owner("telegram:@ada", {"telegram"})
    with pytest.raises(ConfigError, match="channels: discord, telegram"):
        answers.parse_owner("irc:42", {"telegram", "discord"})
    with pytest.raises(ConfigError, match="no id after the colon"):
        answers.parse_owner("telegram:", {"telegram"})
    assert answers.parse_owner(" telegram:42 ", {"telegram"}) == ("telegram", 42)
    assert answers.parse_person("") is None


@pytest.mark.parametrize(
    ("check", "typed", "said"),
    [
        (answers.parse_bot_name, "", "1 to 64 characters"),
        (answers.parse_bot_name, "a\nb", "of one line"),
        (answers.parse_bot_name, "x" * 65, "1 to 64"),
        (answers.parse_bot_name, "a\ud800", "not UTF-8"),
        (answers.parse_language, "english", "the tag of a language"),
        (answers.parse_address, "localhost:11434", "http://"),
        (answers.parse_model_name, "fidibus", "provider/model"),
        (answers.parse_model_name, "opnai/gpt-4o", "did you mean 'openai/gpt-4o'"),
    ],
)
def test_a_wrong_answer_is_told_what_it_has_to_be(check: Callable[[str], Any], typed: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        check(typed)


def test_the_zone_of_the_system_is_that_of_the_variable_the_link_or_the_file(tmp_path: Path) -> None:
    link, file = tmp_path / "localtime", tmp_path / "timezone"
    assert answers.find_system_zone("", link, file) == "UTC"
    file.write_text("Asia/Tokyo\n")
    assert answers.find_system_zone("", link, file) == "Asia/Tokyo"
    target = tmp_path / "zoneinfo" / "Europe" / "Berlin"
    target.parent.mkdir(parents=True)
    target.touch()
    link.symlink_to(target)
    assert answers.find_system_zone("", link, file) == "Europe/Berlin"
    assert answers.find_system_zone(":America/New_York", link, file) == "America/New_York"
    assert answers.find_system_zone("CET-1CEST", link, file) == "Europe/Berlin"
    assert answers.find_system_zone("Etc/UTC", link, file) == "UTC"
