"""Settings under their old names: they work, are named, and never hide the new ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from bubbot.app.settings import load
from bubbot.errors import ConfigError
from bubbot.features.budget.settings import BudgetSettings
from bubbot.features.schedule.settings import ScheduleSettings
from bubbot.settings.channels import split_channel_settings
from bubbot.settings.loader import Settings
from bubbot.settings.renamed import CHANNEL_KEYS

OLD = """
[budget]
dollar = 0.9
cheaper = ["openai/gpt-4o-mini"]
answer_tokens = 500
[schedule]
endless = 3
failures = 4
per_chat = 7
[channels.discord]
always = [1]
listen = [2]
called = ["robo"]
[channels.discord.guilds.5]
always = [3]
listen = [4]
called = ["robbie"]
open = true
"""


def loaded(folder: Path, text: str) -> Settings:
    (folder / "config.toml").write_text(text, encoding="utf-8")
    return load(home=folder)


def test_every_old_name_works_and_is_named_with_the_new_one(tmp_path: Path) -> None:
    settings = loaded(tmp_path, OLD)
    budget, schedule = settings.section(BudgetSettings), settings.section(ScheduleSettings)
    assert (budget.usd_rate, budget.fallback_models, budget.reserved_output_tokens) == (
        0.9,
        ["openai/gpt-4o-mini"],
        500,
    )
    assert (schedule.min_unbounded_interval, schedule.max_failures, schedule.max_jobs_per_chat) == (3, 4, 7)
    common, rest = split_channel_settings("discord", settings.channels["discord"])
    assert (common.respond_to_all, common.record_only, common.trigger_names) == (["1"], ["2"], ["robo"])
    guild = common.guilds["5"]
    assert (guild.respond_to_all, guild.record_only, guild.trigger_names, guild.open) == (
        ["3"],
        ["4"],
        ["robbie"],
        True,
    )
    assert rest == {}
    renamed = settings.renamed_settings
    assert len(renamed) == len(BudgetSettings.renamed_keys) + len(ScheduleSettings.renamed_keys) + 2 * len(CHANNEL_KEYS)
    file = tmp_path / "config.toml"
    assert str(renamed[0]) == f"{file}: [budget] dollar is now called usd_rate; the old name still works."
    values = {setting.new: setting.value for setting in renamed}
    assert values["channels", "discord", "guilds", "5", "respond_to_all"] == [3]
    assert f"{file}: [channels.discord.guilds.5] called is now called trigger_names; the old name still works." in map(
        str, renamed
    )


def test_a_variable_under_an_old_name_beats_the_file_under_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BUBBOT_BUDGET__DOLLAR", "0.8")
    monkeypatch.setenv("BUBBOT_CHANNELS__DISCORD__ALWAYS", "7,8")
    settings = loaded(tmp_path, "[budget]\nusd_rate = 0.9\n[channels.discord]\nrespond_to_all = [1]\n")
    assert settings.section(BudgetSettings).usd_rate == 0.8
    assert split_channel_settings("discord", settings.channels["discord"])[0].respond_to_all == ["7", "8"]
    assert {setting.origin for setting in settings.renamed_settings} == {
        "environment variable BUBBOT_BUDGET__DOLLAR",
        "environment variable BUBBOT_CHANNELS__DISCORD__ALWAYS",
    }


def test_old_names_in_a_variable_with_the_tables_of_servers_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(
        "BUBBOT_CHANNELS__DISCORD__GUILDS", '{"5": {"always": [1], "called": ["x"], "open": true}, "6": 3}'
    )
    with pytest.raises(ConfigError, match="guilds"):  # server 6
        split_channel_settings("discord", loaded(tmp_path, "").channels["discord"])
    monkeypatch.setenv("BUBBOT_CHANNELS__DISCORD__GUILDS", '{"5": {"always": [1], "called": ["x"], "open": true}}')
    settings = loaded(tmp_path, "")
    guild = split_channel_settings("discord", settings.channels["discord"])[0].guilds["5"]
    assert (guild.respond_to_all, guild.trigger_names, guild.open) == (["1"], ["x"], True)
    assert len(settings.renamed_settings) == 2
    monkeypatch.setenv("BUBBOT_CHANNELS__DISCORD__GUILDS", '{"5": {"always": [1]')
    with pytest.raises(ConfigError, match="ids with tables, or a list of ids"):
        split_channel_settings("discord", loaded(tmp_path, "").channels["discord"])


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[budget]\ndollar = 1\nusd_rate = 1\n", "[budget] dollar and usd_rate are both set: keep usd_rate."),
        (
            "[channels.discord.guilds.5]\nlisten = [1]\nrecord_only = [1]\n",
            "[channels.discord.guilds.5] listen and record_only are both set: keep record_only.",
        ),
    ],
)
def test_a_setting_under_both_names_is_refused(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(ConfigError) as raised:
        loaded(tmp_path, text)
    assert str(raised.value) == f"{tmp_path / 'config.toml'}: {told}"


def test_settings_under_todays_names_are_not_mentioned(tmp_path: Path) -> None:
    assert loaded(tmp_path, "[budget]\nusd_rate = 0.9\n[channels.discord]\ntoken = 'always'\n").renamed_settings == ()


def test_a_wrong_value_under_an_old_name_is_told_under_the_new_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"\[schedule\] max_failures is 0, but must be a whole number"):
        loaded(tmp_path, "[schedule]\nfailures = 0\n")
