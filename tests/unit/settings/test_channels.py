"""The keys common to all channels: their forms in the file and in the environment, and the sentences about wrong ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from bubbot.app.settings import load
from bubbot.errors import ConfigError
from bubbot.settings.channels import ChannelSettings, split_channel_settings


def test_what_is_not_set_has_its_default() -> None:
    made, rest = split_channel_settings("telegram", {"kind": "telegram"})
    assert made == ChannelSettings(kind="telegram")
    assert (made.owners, made.groups, made.pairing, made.debounce, made.busy) == ([], [], True, 1.0, "queue")
    assert (made.stale_after, made.per_chat, made.live) == (86400.0, 2, True)
    assert rest == {}


def test_the_kind_is_the_name_where_it_is_not_set() -> None:
    assert split_channel_settings("work-bot", {})[0].kind == "work-bot"
    assert split_channel_settings("work-bot", {"kind": "telegram"})[0].kind == "telegram"


@pytest.mark.parametrize("kind", ["stdin", "terminal"])
def test_a_line_is_not_waited_for_unless_asked(kind: str) -> None:
    assert split_channel_settings("pipe", {"kind": kind})[0].debounce == 0
    assert split_channel_settings("pipe", {"kind": kind, "debounce": 2})[0].debounce == 2


def test_the_keys_of_the_adapter_are_passed_on_untouched() -> None:
    nested = {"a": [1, {"b": None}]}
    made, rest = split_channel_settings("chat", {"token": "t", "owners": [1], "own": nested, "kind": "telegram"})
    assert rest == {"token": "t", "own": nested}
    assert rest["own"] is nested
    assert "token" not in made.model_fields_set


@pytest.mark.parametrize(
    "given", [[1, -100], ["1", "-100"], [1, "-100", 1], "1,-100", " 1 , -100 ,", "[1, -100]", '["1", "-100"]']
)
def test_ids_come_as_numbers_as_text_and_from_the_environment(given: object) -> None:
    assert split_channel_settings("chat", {"owners": given})[0].owners == ["1", "-100"]


@pytest.mark.parametrize(("given", "made"), [(7, ["7"]), ("7", ["7"]), ("", []), ("[]", []), ([], [])])
def test_one_id_and_none(given: object, made: list[str]) -> None:
    assert split_channel_settings("chat", {"groups": given})[0].groups == made


@pytest.mark.parametrize("given", [["bubbot", " 小助手 "], "bubbot, 小助手", '["bubbot", "小助手"]'])
def test_names_come_in_the_same_forms(given: object) -> None:
    assert split_channel_settings("chat", {"trigger_names": given})[0].trigger_names == ["bubbot", "小助手"]


def test_they_come_through_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for key, value in {
        "OWNERS": "1,2",
        "PAIRING": "false",
        "BUSY": "Steer",
        "DEBOUNCE": "0.5",
        "GROUPS": "[-100]",
    }.items():
        monkeypatch.setenv(f"BUBBOT_CHANNELS__CHAT__{key}", value)
    made, _ = split_channel_settings("chat", load(home=tmp_path).channels["chat"])
    assert (made.owners, made.groups) == (["1", "2"], ["-100"])
    assert (made.pairing, made.busy, made.debounce) == (False, "steer", 0.5)


@pytest.mark.parametrize(
    ("key", "value", "sentence"),
    [
        ("owners", ["@ann"], "'@ann' is not a numeric id (anybody can take a username"),
        ("owners", "ann", "use the number of the account"),
        ("members", ["４２"], "another script"),
        ("admins", ["٤٢"], "another script"),
        ("bots", ["007"], "no leading 0"),
        ("groups", [10**30], "not a numeric id"),
        ("groups", [1.5], "1.5 is not a numeric id"),
        ("respond_to_all", True, "must be a list of numeric ids"),
        ("record_only", {"a": 1}, "must be a list of numeric ids"),
        ("record_only", "[1", 'a list such as a,b or ["a", "b"]'),
        ("trigger_names", [""], "1 to 64 characters each"),
        ("trigger_names", ["a\nb"], "1 to 64 characters each"),
        ("trigger_names", [1], "must be a list of texts"),
        ("pairing", "perhaps", "must be true or false"),
        ("live", 7, "must be true or false"),
        ("debounce", -1, "must be a number from 0 to 60"),
        ("debounce", True, "must be a number from 0 to 60"),
        ("busy", "wait", "must be one of queue, steer, drop"),
        ("stale_after", "a day", "must be a number from 0 to 31622400"),
        ("per_chat", 0, "must be a whole number from 1 to 100"),
        ("kind", "", "must be a text of one line"),
    ],
)
def test_a_wrong_value_is_named_with_its_place_and_the_fix(key: str, value: object, sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        split_channel_settings("my-bot", {key: value})
    assert str(caught.value).startswith(f"[channels.my-bot] {key} is ")
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("key", ["owners", "guilds"])
@pytest.mark.parametrize("address", ["http://u:SECRET@h", f"http://{'u' * 40}:SECRET@h", "http://u:SECRET/@SECRET@h"])
def test_an_address_among_the_ids_is_shown_without_its_password(key: str, address: str) -> None:
    with pytest.raises(ConfigError, match=r"'http://\*\*\*@h' is not a numeric id") as caught:
        split_channel_settings("chat", {key: [address]})
    assert "SECRET" not in str(caught.value)
    assert "uuu" not in str(caught.value)


def test_each_problem_has_a_line() -> None:
    with pytest.raises(ConfigError) as caught:
        split_channel_settings("chat", {"owners": ["@ann"], "busy": "no", "token": "secret-of-the-adapter"})
    assert len(str(caught.value).splitlines()) == 2
    assert "secret" not in str(caught.value)
