"""Settings of installed features, and names of installed context strategies."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from pydantic import Field, SecretStr, field_validator, model_validator

from bubbot.errors import ConfigError
from bubbot.ports.settings import SettingsSection, Whole
from bubbot.settings.diff import apply_reloadable, compare, redacted_values
from bubbot.settings.loader import Settings, SettingsExtensions, load


class WeatherSettings(SettingsSection):
    """`[weather]`: a section of a package."""

    days: Whole = Field(default=3, ge=1)
    token: SecretStr | None = None


def extensions(**sections: type[SettingsSection] | None) -> SettingsExtensions:
    return SettingsExtensions(find_sections=lambda: sections)


WEATHER = extensions(weather=WeatherSettings)


def read(folder: Path, text: str, extend: SettingsExtensions = WEATHER) -> Settings:
    (folder / "config.toml").write_text(text)
    return load(home=folder, extensions=extend)


def weather(settings: Settings) -> WeatherSettings:
    return settings.section(WeatherSettings)


def test_a_section_of_a_package_is_read_and_its_secret_is_known(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("s3cret\n")
    settings = read(tmp_path, "[weather]\ndays = 5\ntoken_file = 'key'\n")
    assert weather(settings).days == 5
    assert settings.secrets() == ("s3cret",)
    assert redacted_values(settings) == {"weather.days": 5, "weather.token": "[secret]"}


def test_a_variable_is_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BUBBOT_WEATHER__DAYS", "7")
    assert weather(read(tmp_path, "")).days == 7


def test_nothing_is_looked_up_for_settings_of_bubbot_itself(tmp_path: Path) -> None:
    def refuse() -> Mapping[str, type[SettingsSection] | None]:
        raise AssertionError("nobody needs to know")

    settings = read(tmp_path, "[bot]\nname = 'Anna'\n", SettingsExtensions(find_sections=refuse))
    assert weather(settings) == WeatherSettings()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[weather]\ndays = 0\n", "[weather] days is 0, but must be a whole number from 1."),
        ("[weather]\nday = 1\n", "[weather] day is not a setting; did you mean 'days'?"),
        ("[wether]\nday = 1\n", "[wether] is not a section; did you mean 'weather'?"),
    ],
)
def test_a_wrong_setting_is_refused_with_its_origin_and_the_nearest_name(
    tmp_path: Path, text: str, reason: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, text)
    assert reason in str(caught.value)
    assert str(caught.value).startswith(str(tmp_path / "config.toml"))


class FaultySettings(SettingsSection):
    """A section whose validator fails in a way that pydantic does not expect."""

    days: int = 1

    @field_validator("days")
    @classmethod
    def _look_up(cls, days: int) -> int:
        return {1: 1}[days]


def test_a_validator_that_fails_is_a_problem_of_the_settings(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"The settings of an installed feature cannot be checked: KeyError: 2\."):
        read(tmp_path, "[faulty]\ndays = 2\n", extensions(faulty=FaultySettings))


def test_a_section_that_no_installed_feature_owns_is_named_and_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BUBBOT_GARDEN__DAYS", "none")
    settings = read(tmp_path, "[lottery]\nanything = 1\n[weather]\ndays = 5\n")
    assert weather(settings).days == 5
    assert [str(section) for section in settings.unowned_sections] == [
        "environment variable BUBBOT_GARDEN__DAYS: [garden] belongs to no installed feature, and is not read.",
        f"{tmp_path / 'config.toml'}: [lottery] belongs to no installed feature, and is not read.",
    ]


def test_a_section_of_a_broken_package_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BUBBOT_WEATHER__DAYS", "none")
    assert read(tmp_path, "[weather]\nanything = 1\n", extensions(weather=None)) == Settings()


def test_a_reload_sees_what_differs_from_the_defaults_of_a_section_that_was_not_written(tmp_path: Path) -> None:
    old, new = Settings(), read(tmp_path, "[weather]\ndays = 5\n")
    assert compare(old, new).reloadable == ("weather.days",)
    assert compare(old, new, ["weather"]).restart_required == ("weather.days",)
    assert compare(old, read(tmp_path, "[weather]\n")).reloadable == ()
    later = read(tmp_path, "[weather]\ndays = 6\n")
    assert weather(apply_reloadable(new, later, ["weather"])).days == 5


class PairedSettings(SettingsSection):
    """A section with a rule about two of its keys."""

    low: int = 1
    high: int = 2

    @model_validator(mode="after")
    def _compare(self) -> PairedSettings:
        if self.low > self.high:
            raise ValueError("low must not be above high")
        return self


def test_a_rule_of_a_package_about_several_keys_is_told_with_its_section(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^\[paired\] low must not be above high\.$"):
        read(tmp_path, "[paired]\nlow = 3\n", extensions(paired=PairedSettings))
