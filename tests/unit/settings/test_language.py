"""The language before the settings are loaded."""

from __future__ import annotations

from pathlib import Path

import pytest

from bubbot.settings.language import read_language

VARIABLES = ("LC_ALL", "LC_MESSAGES", "LANG")


@pytest.fixture(autouse=True)
def no_locale(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*VARIABLES, "BUBBOT_BOT__LANGUAGE"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("values", "language"),
    [
        (("", "", ""), "en"),
        (("", "", "de_AT.UTF-8"), "de"),
        (("", "zh_CN", "de_DE"), "zh"),
        (("C.UTF-8", "zh_CN", "de_DE"), "en"),
        (("POSIX", "", "de"), "en"),
        (("../zh", "", ""), "en"),
        (("german", "", ""), "en"),
    ],
)
def test_without_a_file_it_is_that_of_the_shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, values: tuple[str, ...], language: str
) -> None:
    for name, value in zip(VARIABLES, values, strict=True):
        monkeypatch.setenv(name, value)
    assert read_language(tmp_path, None) == language


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ('[bot]\nlanguage = "zh-Hans"\n', "zh-Hans"),
        ('[bot]\nname = "Ada"\n', "en"),
        ("[bot]\nlanguage = 7\n", "en"),
        ('bot = "language"\n', "en"),
        ("language = [\n", "de"),
        (b"\xff language", "de"),
    ],
)
def test_with_a_file_it_is_that_of_the_bot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | bytes, language: str
) -> None:
    file = tmp_path / "elsewhere.toml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    monkeypatch.setenv("LANG", "de_DE.UTF-8")
    assert read_language(tmp_path, file) == language
    monkeypatch.setenv("BUBBOT_BOT__LANGUAGE", "fr")
    assert read_language(tmp_path, file) == "fr"
