"""The settings of an adapter that is not bubbot's own: whatever types it chooses, errors are sentences without secrets."""

from __future__ import annotations

import datetime
from typing import Annotated, Any, ClassVar, Literal, Self

import pytest
from pydantic import Field, SecretStr, model_validator

from bubbot.errors import ConfigError
from bubbot.ports.settings import AdapterSettings, SecretText


class BoxSettings(AdapterSettings):
    platform: ClassVar[str] = "Letterbox"

    password: SecretStr = SecretStr("")
    optional: SecretStr | None = None
    marked: Annotated[str, "secret"] = ""
    optional_marked: Annotated[str, "secret"] | None = None
    text: SecretText = ""
    many: list[SecretStr] = Field(default=[])
    nested: dict[str, list[Annotated[str, "secret"]]] = Field(default={})


class LetterSettings(AdapterSettings):
    platform: ClassVar[str] = "Letterbox"

    when: datetime.time | None = None
    level: Literal[1, 2] = 1
    pins: list[int] = Field(default=[])
    names: list[str] = Field(default=[])
    headers: dict[str, str] = Field(default={})
    tags: set[str] = Field(default=set())
    title: Annotated[str, Field(max_length=3)] = ""
    size: Annotated[int, Field(ge=1, lt=5)] = 1
    port: int | str = 1
    depth: Annotated[int, Field(le=3)] | None = None


class PairSettings(AdapterSettings):
    platform: ClassVar[str] = "Letterbox"

    user: str = ""
    password: SecretStr = SecretStr("")

    @model_validator(mode="after")
    def _check_pair(self) -> Self:
        if self.user and not self.password:
            raise ValueError("needs a password for the user")
        return self


def refuse(settings: type[AdapterSettings], key: str, value: object) -> str:
    """Return the sentence about a wrong value."""
    with pytest.raises(ConfigError) as caught:
        settings.read("box", {key: value})
    return str(caught.value)


@pytest.mark.parametrize("value", [[["CANARY"]], {"x": "CANARY"}, {"CANARY": 1}, {"x": ["CANARY", 5]}])
@pytest.mark.parametrize("key", BoxSettings.model_fields)
def test_a_wrong_secret_is_not_shown(key: str, value: Any) -> None:
    sentence = refuse(BoxSettings, key, value)
    assert sentence.startswith(f"[channels.box] {key} ")
    assert "CANARY" not in sentence


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("when", "x", "another value (Input should be in a valid time format, "),
        ("level", 3, "one of 1, 2."),
        ("pins", ["a"], "another value (Input should be a valid integer, unable to parse string as an integer)."),
        ("names", 5, "a list of texts."),
        ("headers", {"a": 1}, "another value (Input should be a valid string)."),
        ("tags", 5, "another value (Input should be a valid set)."),
        ("title", "abcd", "another value (String should have at most 3 characters)."),
        ("size", 0, "a whole number from 1."),
        ("size", 5, "another value (Input should be less than 5)."),
        ("port", [1], "a whole number or a text."),
        ("depth", 4, "another value (Input should be less than or equal to 3)."),
    ],
)
def test_a_wrong_value_of_any_type_has_one_line_with_what_is_expected(key: str, value: object, expected: str) -> None:
    sentence = refuse(LetterSettings, key, value)
    assert sentence.startswith(f"[channels.box] {key} is {value!r} and has to be {expected}")
    assert "\n" not in sentence


def test_a_validator_of_the_whole_table_has_its_own_words() -> None:
    assert refuse(PairSettings, "user", "ann") == "[channels.box] needs a password for the user."


def test_settings_can_be_built_without_a_channel() -> None:
    settings = LetterSettings(port=2)
    assert (settings.port, settings.channel) == (2, "")
    assert LetterSettings.read("box", {}).channel == "box"
