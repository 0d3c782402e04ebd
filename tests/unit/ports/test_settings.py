"""The settings of an adapter that is not bubbot's own: whatever types it chooses, errors are sentences without secrets."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import pytest
from pydantic import Field, SecretStr

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


def refuse(key: str, value: object) -> str:
    """Return the sentence about a wrong value."""
    with pytest.raises(ConfigError) as caught:
        BoxSettings.read("box", {key: value})
    return str(caught.value)


@pytest.mark.parametrize("value", [[["CANARY"]], {"x": "CANARY"}, {"CANARY": 1}, {"x": ["CANARY", 5]}])
@pytest.mark.parametrize("key", BoxSettings.model_fields)
def test_a_wrong_secret_is_not_shown(key: str, value: Any) -> None:
    sentence = refuse(key, value)
    assert sentence.startswith(f"[channels.box] {key} ")
    assert "CANARY" not in sentence
