"""Settings: every source, their order, and what hostile ones are told."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from bubbot.app.settings import describe_settings, load
from bubbot.errors import ConfigError
from bubbot.features.files.settings import FileSettings
from bubbot.features.shell.settings import ShellSettings
from bubbot.features.web.settings import WebSettings
from bubbot.settings.environment import default_home, logging_environment
from bubbot.settings.loader import Settings
from tests.config_files import CANARY, refused, written
from tests.made_settings import make_settings


def test_a_home_without_a_file_has_the_defaults(tmp_path: Path) -> None:
    settings = load(home=tmp_path / "nothing" / "here")
    assert settings == make_settings()
    assert (settings.model.timeout, settings.model.max_steps, settings.channels) == (600.0, 20, {})


def test_describe_agrees_with_the_defaults() -> None:
    defaults = Settings()
    for setting in describe_settings():
        if setting.section in Settings.model_fields:
            assert getattr(getattr(defaults, setting.section), setting.key) == setting.default
        assert setting.description.endswith(".")
    assert len({(setting.section, setting.key) for setting in describe_settings()}) == len([*describe_settings()])


def test_the_file_is_read(tmp_path: Path) -> None:
    written(tmp_path, '[bot]\nname = "Zoë"\ntimezone = "Europe/Berlin"\n[model]\ntimeout = 5\nmax_steps = 3\n')
    settings = load(home=tmp_path)
    assert (settings.bot.name, settings.bot.timezone) == ("Zoë", "Europe/Berlin")
    assert (settings.model.timeout, settings.model.max_steps) == (5.0, 3)


def test_a_byte_order_mark_and_windows_line_ends_are_fine(tmp_path: Path) -> None:
    written(tmp_path, b'\xef\xbb\xbf[bot]\r\nname = "Anna"\r\n')
    assert load(home=tmp_path).bot.name == "Anna"


def test_another_file_takes_the_place_of_the_homes(tmp_path: Path) -> None:
    written(tmp_path, '[bot]\nname = "home"\n')
    other = tmp_path / "other.toml"
    other.write_text('[bot]\nlanguage = "de"\n')
    settings = load(home=tmp_path, config=other)
    assert (settings.bot.name, settings.bot.language) == ("bubbot", "de")


def test_the_environment_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path, '[model]\nname = "file"\ntimeout = 5\n')
    monkeypatch.setenv("BUBBOT_MODEL__NAME", "environment")
    monkeypatch.setenv("bubbot_log__level", "DEBUG")
    monkeypatch.setenv("BUBBOT_HOME", "/anywhere")
    settings = load(home=tmp_path)
    assert (settings.model.name, settings.model.timeout, settings.log.level) == ("environment", 5.0, "debug")


def test_what_looks_like_json_in_the_environment_stays_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BUBBOT_BOT__PERSONA", '{"a": 1}')
    monkeypatch.setenv("BUBBOT_CHANNELS__TELEGRAM__OWNERS", "[1, 2]")
    settings = load(home=tmp_path)
    assert settings.bot.persona == '{"a": 1}'
    assert settings.channels["telegram"]["owners"] == "[1, 2]"


LISTS = [each for each in describe_settings() if isinstance(each.default, list) and "<" not in each.section]


@pytest.mark.parametrize("setting", LISTS, ids=lambda each: f"{each.section}.{each.key}")
def test_every_list_comes_from_the_environment_as_json_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: Any
) -> None:
    items = setting.default or {
        "engines": ["ddgs"],
        "fallback": ["scripted"],
        "endpoint_sessions": ["telegram:42"],
    }.get(setting.key, ["/a"])
    assert isinstance(items, list)
    name = f"BUBBOT_{setting.section.replace('.', '__').upper()}__{setting.key.upper()}"
    for text in (json.dumps(items), f" {json.dumps(items, indent=1)} ", ",".join(items)):
        monkeypatch.setenv(name, text)
        found: Any = load(home=tmp_path)
        for part in (*setting.section.split("."), setting.key):
            found = getattr(found, part)
        assert found == items, text
    monkeypatch.setenv(name, '["/a')
    with pytest.raises(ConfigError, match=f"{name}.* a list such as a,b"):
        load(home=tmp_path)


def test_a_folder_with_a_comma_comes_as_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BUBBOT_TOOLS__SHELL__READABLE", '["/a,b", "/c"]')
    assert load(home=tmp_path).section(ShellSettings).readable == ["/a,b", "/c"]


def test_a_variable_that_is_nested_too_deep_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BUBBOT_CHANNELS__TELEGRAM", "[" * 90_000)
    with pytest.raises(ConfigError, match=r"BUBBOT_CHANNELS__TELEGRAM: .* must be a section with keys"):
        load(home=tmp_path)


def test_a_variable_may_hold_a_channel_or_the_inside_of_a_key_as_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BUBBOT_CHANNELS__TELEGRAM", '{"owners": [1]}')
    monkeypatch.setenv("BUBBOT_CHANNELS__TELEGRAM__TOKEN", "1")
    monkeypatch.setenv("BUBBOT_CHANNELS__DISCORD__GUILDS__5", '{"open": true}')
    monkeypatch.setenv("BUBBOT_CHANNELS__DISCORD__GUILDS__6", "{")
    assert load(home=tmp_path).channels == {
        "telegram": {"kind": "telegram", "owners": [1], "token": "1"},
        "discord": {"kind": "discord", "guilds": {"5": {"open": True}, "6": "{"}},
    }


def test_a_variable_replaces_all_of_a_key_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path, "[channels.discord]\nowners = [1]\n[channels.discord.guilds.5]\nopen = true\n")
    monkeypatch.setenv("BUBBOT_CHANNELS__DISCORD__GUILDS__6", '{"open": true}')
    assert load(home=tmp_path).channels["discord"] == {
        "kind": "discord",
        "owners": [1],
        "guilds": {"6": {"open": True}},
    }


@pytest.mark.parametrize("is_json_first", [True, False])
def test_a_key_adds_to_the_json_of_its_channel_in_any_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_json_first: bool
) -> None:
    variables = [("BUBBOT_CHANNELS__WORK", '{"kind": "telegram"}'), ("BUBBOT_CHANNELS__WORK__TOKEN", "1")]
    for name, value in variables if is_json_first else reversed(variables):
        monkeypatch.setenv(name, value)
    assert load(home=tmp_path).channels == {"work": {"kind": "telegram", "token": "1"}}


@pytest.mark.parametrize("names", [("", "__TOKEN"), ("__TOKEN", "")])
def test_a_channel_that_is_text_is_refused_whatever_else_is_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: tuple[str, str]
) -> None:
    for name in names:
        monkeypatch.setenv(f"BUBBOT_CHANNELS__TELEGRAM{name}", CANARY)
    assert "[channels.telegram] must be a section with keys" in refused(tmp_path)


def test_channels_come_unparsed_and_know_their_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (
        '[channels.telegram]\nowners = [1]\n[channels.work-bot]\nkind = "telegram"\n[channels.work-bot.deep]\nx = 1\n'
    )
    written(tmp_path, text)
    monkeypatch.setenv("BUBBOT_CHANNELS__TELEGRAM__TOKEN", CANARY)
    monkeypatch.setenv("BUBBOT_CHANNELS__WORK_BOT__TOKEN", "1:x")
    monkeypatch.setenv("BUBBOT_CHANNELS__DISCORD__TOKEN", "2:y")
    settings = load(home=tmp_path)
    assert settings.channels == {
        "telegram": {"kind": "telegram", "owners": [1], "token": CANARY},
        "work-bot": {"kind": "telegram", "deep": {"x": 1}, "token": "1:x"},
        "discord": {"kind": "discord", "token": "2:y"},
    }
    assert CANARY not in repr(settings)
    assert set(settings.secrets()) == {CANARY, "1:x", "2:y"}


def test_a_channel_without_keys_is_there(tmp_path: Path) -> None:
    written(tmp_path, "[channels.stdin]\n")
    assert load(home=tmp_path).channels == {"stdin": {"kind": "stdin"}}


def test_settings_do_not_change(tmp_path: Path) -> None:
    settings = load(home=tmp_path)
    with pytest.raises(ValidationError):
        settings.model.name = "other"
    with pytest.raises(ValidationError):
        settings.log = settings.log


def test_settings_made_directly_read_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BUBBOT_BOT__NAME", "environment")
    assert Settings().bot.name == "bubbot"


class TestPaths:
    def test_those_of_the_file_count_from_its_folder(self, tmp_path: Path) -> None:
        written(tmp_path, '[bot]\npersona_file = "me/persona.md"\n[model]\nscript = "/abs/script"\n')
        settings = load(home=tmp_path)
        assert settings.bot.persona_file == tmp_path / "me" / "persona.md"
        assert settings.model.script == Path("/abs/script")

    def test_those_of_the_environment_from_here(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        here = tmp_path / "here"
        here.mkdir()
        monkeypatch.chdir(here)
        monkeypatch.setenv("BUBBOT_MODEL__SCRIPT", "script")
        assert load(home=tmp_path).model.script == here / "script"

    def test_empty_is_not_set(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        written(tmp_path, '[bot]\npersona_file = "x"\n[model]\napi_key_file = ""\napi_base = ""\napi_key = ""\n')
        monkeypatch.setenv("BUBBOT_BOT__PERSONA_FILE", "")
        settings = load(home=tmp_path)
        assert (settings.bot.persona_file, settings.model.api_key, settings.model.api_base) == (None, None, None)

    def test_a_path_in_the_home_of_an_unknown_user_is_refused(self, tmp_path: Path) -> None:
        assert "[bot] persona_file is '~no-such-user/x'" in refused(
            tmp_path, '[bot]\npersona_file = "~no-such-user/x"\n'
        )


class TestPersona:
    def test_text_or_file(self, tmp_path: Path) -> None:
        (tmp_path / "persona.md").write_text("You are kind.\n")
        written(tmp_path, '[bot]\npersona_file = "persona.md"\n')
        assert load(home=tmp_path).bot.read_persona() == "You are kind."
        written(tmp_path, '[bot]\npersona = "You are short."\n')
        assert load(home=tmp_path).bot.read_persona() == "You are short."

    def test_both_or_unreadable(self, tmp_path: Path) -> None:
        written(tmp_path, '[bot]\npersona = "x"\npersona_file = "persona.md"\n')
        with pytest.raises(ConfigError, match="both set"):
            load(home=tmp_path).bot.read_persona()
        written(tmp_path, '[bot]\npersona_file = "persona.md"\n')
        with pytest.raises(ConfigError, match=r"\[bot\] persona_file: .*persona.md cannot be read \(No such file"):
            load(home=tmp_path).bot.read_persona()
        (tmp_path / "persona.md").write_bytes(b"x\n\xff")
        with pytest.raises(ConfigError, match="line 2 is not UTF-8"):
            load(home=tmp_path).bot.read_persona()


class TestWrongValues:
    @pytest.mark.parametrize(
        ("text", "told"),
        [
            ("[model]\ntimeout = 0", "[model] timeout is 0, but must be a number above 0, at most 86400."),
            ("[model]\ntimeout = inf", "[model] timeout is inf, but must be a number above 0, at most 86400."),
            ("[model]\ntimeout = nan", "[model] timeout is nan, but must be a number above 0, at most 86400."),
            ("[model]\ntimeout = true", "[model] timeout is true, but must be a number above 0, at most 86400."),
            ("[model]\nmax_steps = 1.5", "[model] max_steps is 1.5, but must be a whole number from 1 to 1000."),
            ("[model]\nmax_steps = [1]", "[model] max_steps is [1], but must be a whole number from 1 to 1000."),
            ("[model]\nthreads = -1", "[model] threads is -1, but must be a whole number from 1 to 512."),
            ("[model]\nscript = 5", "[model] script is 5, but must be a path."),
            (
                "[model]\napi_key = 5",
                "[model] api_key is of the wrong type (the value is not shown), but must be a secret",
            ),
            ("[model]\napi_base = 'localhost'", "'localhost', but must be a web address that begins with http://"),
            ("[model]\napi_base = 'http://[::1'", "'http://[::1', but must be a web address with a host"),
            (
                "[model]\napi_base = 'http://h:65536/v1'",
                "but must be a web address with a host and, if it has one, a port",
            ),
            ("[model]\napi_base = 'http://h:x'", "but must be a web address with a host and, if it has one, a port"),
            ("[bot]\nname = 5", "[bot] name is 5, but must be a text."),
            ("[bot]\nname = ' '", "[bot] name is ' ', but must be a text of one line, 1 to 64 characters."),
            ("[bot]\nname = {x = 1}", "[bot] name is {'x': 1}, but must be a text."),
            ("[bot]\nlanguage = 'german'", "but must be the tag of a language, such as 'de', 'en' or 'zh'."),
            ("[telegram]\ntoken = 'x'", "[telegram] is not a section: write [channels.telegram]."),
            ("[discord]", "[discord] is not a section: write [channels.discord]."),
            ("[bot]\nlanguage = 'English!'", "but must be the tag of a language, such as 'de', 'en' or 'zh'."),
            ("[context]\nselector = ''", "[context] selector is '', but must be a text of one line"),
            ("[memory]\nretention_days = 0", "but must be a whole number from 1 to 36500."),
            (
                "[context]\nselector = 'windw'",
                "[context] selector is 'windw', but must be one of auto, window, messages",
            ),
            ("[context]\nselector = 'windw'", "did you mean 'window'?"),
            ("[context]\nselector = 'from:'", "[context] selector is 'from:', but must be one of"),
            ("[context]\nselector = 'from:<anchor>'", "[context] selector is 'from:<anchor>', but must be one of"),
            ("[log]\nlevel = 'loud'", "[log] level is 'loud', but must be one of debug, info, warning, error."),
            ("[log]\nlevel = 5", "[log] level is 5, but must be one of debug, info, warning, error."),
            ("model = 5", "[model] must be a section with keys, not a single value."),
            ("[[model]]\nname = 'x'", "[model] must be a section with keys, not a single value."),
            ("[channels]\nstdin = true", "[channels.stdin] must be a section with keys"),
            ("[channels.'a:b']", "[channels.a:b] needs another name"),
            ("[channels.x]\nkind = ''", "[channels.x] kind must be the name of an adapter, in quotes."),
        ],
    )
    def test_are_told_with_what_is_wanted(self, tmp_path: Path, text: str, told: str) -> None:
        sentence = refused(tmp_path, text)
        assert sentence.startswith(f"{tmp_path / 'config.toml'}: ")
        assert told in sentence
        assert "\n" not in sentence

    @pytest.mark.parametrize(
        ("zone", "nearest"),
        [("Europe/Berln", "Europe/Berlin"), ("europe/berlin", "Europe/Berlin"), ("Berlin", "Europe/Berlin")],
    )
    def test_a_time_zone_has_a_nearest(self, tmp_path: Path, zone: str, nearest: str) -> None:
        told = refused(tmp_path, f'[bot]\ntimezone = "{zone}"\n')
        assert f"[bot] timezone is {zone!r}" in told
        assert f"the nearest is {nearest!r}" in told

    @pytest.mark.parametrize("zone", ["", "../../etc/passwd", "/etc/localtime", "Europe", "\\u0000", "x" * 300])
    def test_hostile_time_zones(self, tmp_path: Path, zone: str) -> None:
        assert "the IANA name of a time zone" in refused(tmp_path, f'[bot]\ntimezone = "{zone}"\n')

    def test_in_the_environment_are_told_with_the_variable(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("BUBBOT_MODEL__TIMEOUT", "soon")
        assert refused(tmp_path) == (
            "environment variable BUBBOT_MODEL__TIMEOUT: "
            "[model] timeout is 'soon', but must be a number above 0, at most 86400."
        )

    def test_each_has_its_sentence(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("BUBBOT_TOOLS__TIMEOUT", "-1")
        told = refused(tmp_path, '[model]\ntimeout = 0\nnmae = "x"\n[log]\nlevel = 1\n[bto]\n').splitlines()
        assert len(told) == 5
        assert sum("BUBBOT_TOOLS__TIMEOUT" in line for line in told) == 1

    def test_a_long_value_is_cut(self, tmp_path: Path) -> None:
        assert len(refused(tmp_path, f'[bot]\nname = "{"x" * 100_000}"\n')) < 500

    def test_bytes_that_are_no_text_in_the_environment(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("BUBBOT_BOT__NAME", os.fsdecode(b"caf\xe9"))
        assert refused(tmp_path) == "environment variable BUBBOT_BOT__NAME is not UTF-8 text."


class TestUnknownNames:
    @pytest.mark.parametrize(
        ("text", "told"),
        [
            ("[model]\nnmae = 'x'", "[model] nmae is not a setting; did you mean 'name'?"),
            ("[model]\nTIMEOUT = 5", "[model] TIMEOUT is not a setting; did you mean 'timeout'?"),
            ("[model]\nzzzz = 5", "[model] zzzz is not a setting; docs/reference/config.md lists all settings."),
            ("[modle]\nname = 'x'", "[modle] is not a section; did you mean 'model'?"),
            ("name = 'x'", "[name] is not a section; docs/reference/config.md lists all sections."),
            ("[bot]\nlanguage_file = 'x'", "[bot] language_file is not a setting; did you mean 'language'?"),
        ],
    )
    def test_in_the_file(self, tmp_path: Path, text: str, told: str) -> None:
        assert refused(tmp_path, text) == f"{tmp_path / 'config.toml'}: {told}"

    @pytest.mark.parametrize(
        ("name", "told"),
        [
            ("BUBBOT_MODEL__NMAE", "[model] nmae is not a setting; did you mean 'name'"),
            ("BUBBOT_MODLE__NAME", "[modle] is not a section; did you mean 'model'"),
            ("BUBBOT_MODEL__", "BUBBOT_MODEL__: [model]  is not a setting"),
            ("BUBBOT_MODEL__NAME__X", "names no setting: write BUBBOT_<SECTION>__<KEY>"),
            ("BUBBOT_MODEL_NAME", "names no setting: write BUBBOT_MODEL__NAME"),
            ("BUBBOT_MODEL_API_KEY", "names no setting: write BUBBOT_MODEL__API_KEY"),
            ("BUBBOT_MODEL", "names no setting: write BUBBOT_MODEL__<KEY>"),
            ("BUBBOT_CHANNELS__TELEGRAM", "[channels.telegram] must be a section with keys"),
            ("BUBBOT_CHANNELS__TELEGRAM__", "names no setting"),
            ("BUBBOT_CHANNELS____TOKEN", "names no setting"),
        ],
    )
    def test_in_the_environment(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, told: str) -> None:
        monkeypatch.setenv(name, CANARY)
        sentences = refused(tmp_path)
        assert f"environment variable {name}" in sentences
        assert told in sentences
        if "NAME__X" not in name:
            assert CANARY not in sentences

    def test_variables_of_others_are_left_alone(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("BUBBOT_PORT", "BUBBOT_PORT_80_TCP_ADDR", "BUBBOT_SERVICE_HOST", "BUBBOT_", "BUBBOTTY__X__Y"):
            monkeypatch.setenv(name, "x")
        assert load(home=tmp_path) == make_settings()


class TestDefaultHome:
    def test_bubbot_home_overrides_xdg_data_home(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HOME", "/home/anna")
        monkeypatch.delenv("XDG_DATA_HOME", raising=False)
        assert default_home() == Path("/home/anna/.local/share/bubbot")
        monkeypatch.setenv("XDG_DATA_HOME", "relative/is/ignored")
        assert default_home() == Path("/home/anna/.local/share/bubbot")
        monkeypatch.setenv("XDG_DATA_HOME", "/data")
        assert default_home() == Path("/data/bubbot")
        monkeypatch.setenv("BUBBOT_HOME", "")
        assert default_home() == Path("/data/bubbot")
        monkeypatch.setenv("BUBBOT_HOME", "~/bot")
        assert default_home() == Path("/home/anna/bot")
        monkeypatch.setenv("BUBBOT_HOME", "here")
        assert default_home() == Path.cwd() / "here"

    def test_the_home_of_an_unknown_user_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("BUBBOT_HOME", "~no-such-user/bot")
        with pytest.raises(ConfigError, match="--home or BUBBOT_HOME"):
            default_home()


def test_the_environment_of_a_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    assert logging_environment() == ("info", ())
    monkeypatch.setenv("BUBBOT_LOG__LEVEL", "Debug")
    monkeypatch.setenv("BUBBOT_MODEL__API_KEY", CANARY)
    assert logging_environment() == ("debug", (CANARY,))
    monkeypatch.setenv("BUBBOT_LOG__LEVEL", "loud")
    assert logging_environment()[0] == "info"


def test_a_section_within_a_section_is_read_from_every_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path, "[tools]\ntimeout = 5\n[tools.web]\nenabled = true\n")
    monkeypatch.setenv("BUBBOT_TOOLS__SHELL__ENABLED", "true")
    settings = load(home=tmp_path)
    assert settings.tools.timeout == 5.0
    assert settings.section(WebSettings).enabled
    assert not settings.section(FileSettings).enabled
    assert settings.section(ShellSettings).enabled


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[tools]\nweb = 1\n", "[tools.web] must be a section with keys, not a single value."),
        ("[tools.web]\nenable = true\n", "[tools.web] enable is not a setting; did you mean 'enabled'?"),
        ('[tools.web]\nenabled = "maybe"\n', "[tools.web] enabled is 'maybe', but must be true or false."),
        ("[tools.wb]\nenabled = true\n", "[tools] wb is not a setting; did you mean 'web'?"),
    ],
)
def test_a_wrong_section_within_a_section_is_named(tmp_path: Path, text: str, sentence: str) -> None:
    written(tmp_path, text)
    assert sentence in refused(tmp_path)


@pytest.mark.parametrize("debugs", ["1", "true"])
def test_no_source_is_logged_whatever_the_library_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, debugs: str
) -> None:
    monkeypatch.setenv("PYDANTIC_SETTINGS_DEBUG", debugs)
    monkeypatch.setenv("BUBBOT_CHANNELS__TELEGRAM__TOKEN", CANARY)
    written(tmp_path, f'[model]\napi_key = "{CANARY}"\n')
    credentials = tmp_path / "credentials"
    credentials.mkdir()
    (credentials / "server.token").write_text(CANARY)
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(credentials))
    for logger in (None, "pydantic_settings"):
        caplog.set_level("DEBUG", logger)
    assert CANARY in load(home=tmp_path).secrets()
    Settings(channels={"telegram": {"token": CANARY}})
    assert CANARY not in caplog.text
    assert "sources" not in caplog.text
