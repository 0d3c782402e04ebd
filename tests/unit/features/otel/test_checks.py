"""Settings of the traces, and doctor findings about them. Each is planted."""

from __future__ import annotations

import logging
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from bubbot.app.settings import load
from bubbot.errors import ConfigError
from bubbot.features.otel.feature import OtelConfig
from bubbot.features.otel.settings import OtelSettings
from bubbot.home import Home
from bubbot.stores.inmemory import InMemoryStore
from bubbot.tape.entry import event
from bubbot.tape.service import TapeService
from tests.doubles import CountingIds, SteppingClock
from tests.fakes.otlp_server import receiver
from tests.planting import found, look, look_at_tape, mend, mends, plants
from tests.traced import say, settings_for, traced, written
from tests.unit.features.otel.test_exporter import health


def check(home: Home) -> Any:
    """What is found under the settings of a home."""
    return look("otel", home)


def test_nothing_is_said_of_what_is_off(home: Home) -> None:
    assert check(home) == []


@plants("otel.ok")
@pytest.mark.parametrize(
    ("content", "said"), [("off", "without anything"), ("redacted", "without secrets"), ("full", "who said")]
)
def test_where_traces_go_and_what_is_in_them(home: Home, content: str, said: str) -> None:
    home.config.write_text(f'[otel]\nendpoint = "http://localhost:6006/"\ncontent = "{content}"\n')
    (finding,) = found(check(home)).values()
    assert (finding.id, "localhost:6006" in finding.cause, said in finding.cause) == ("otel.ok", True, True)


@plants("otel.unencrypted")
@mends("otel.unencrypted")
def test_texts_or_keys_over_plain_http_to_another_machine(home: Home, tmp_path: Path) -> None:
    home.config.write_text('[otel]\nendpoint = "http://traces.example.com"\n')
    assert "otel.unencrypted" not in found(check(home)), "there is nothing to read in them"
    home.config.write_text('[otel]\nendpoint = "http://traces.example.com"\ncontent = "full"\n')
    assert found(check(home))["otel.unencrypted"].level == "warning"
    text = '[otel]\nendpoint = "https://traces.example.com"\ncontent = "full"\n'
    home.config.write_text(f'{text}annotations = "http://phoenix.example.com"\n')
    assert "phoenix.example.com" in found(check(home))["otel.unencrypted"].cause
    mend(lambda: check(home), "otel.unencrypted", tmp_path, text=text)


@plants("otel.packages_missing")
def test_packages_that_are_not_installed(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bubbot.features.otel.encoding.find_spec", lambda _: None)
    home.config.write_text('[otel]\nendpoint = "http://127.0.0.1:6006"\n')
    (finding,) = found(check(home)).values()
    assert finding.id == "otel.packages_missing"
    assert "--require-hashes" in finding.fix


@plants("otel.refused")
@pytest.mark.parametrize("partly", [False, True])
async def test_a_receiver_that_refuses_everything_is_told_of_once_for_each_cause(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, *, partly: bool
) -> None:
    """By its status, or by an answer that counts every span as rejected. It is over with the first turn that it takes."""
    monkeypatch.setattr("bubbot.features.otel.exporter.GATHER_SECONDS", 0.0)
    caplog.set_level(logging.INFO)
    async with receiver() as taken:
        settings = settings_for(tmp_path, endpoint=taken.url)
        async with traced(settings, tmp_path) as bot:
            tape, section = bot.channel_factory.open_tape("bubbot/otel"), settings.section(OtelSettings)
            for number in range(3):
                taken.rejects = 3 if partly else 0
                taken.answers = [] if partly else [(400, {})]
                await say(bot, str(number))
                await written(bot, "otel/exported", number + 1)
            line = health(bot)[1][-1]
            assert "was refused (3) and is not sent again: " in line
            assert "check `[otel]` endpoint and headers" in line
            finding = found(await look_at_tape("otel", tape, section))["otel.refused"]
            assert ("3 turns" in finding.cause, "(400)" in finding.cause) == (True, not partly)
            logged = [one.levelname for one in caplog.records if getattr(one, "action", "") == "otel.refused"]
            assert logged == ["WARNING", "INFO", "INFO"]
            taken.rejects = 0
            await say(bot, "taken")
            await written(bot, "otel/exported", 4)
            assert "was refused" not in health(bot)[1][-1]
            assert await look_at_tape("otel", tape, section) == []


async def test_refused_turns_are_counted_from_the_first_that_was_refused(
    memory_store: InMemoryStore,
) -> None:
    clock = SteppingClock()
    tape = TapeService(memory_store, "bubbot/otel", now=clock, new_id=CountingIds())
    for rejected in (0, 3, 3, 3):
        await tape.append([event("otel/exported", {"position": 1, "turns": 1, "spans": 3, "rejected": rejected})])
        clock.advance(timedelta(hours=1))
    settings = OtelSettings(endpoint="http://127.0.0.1:6006")
    cause = found(await look_at_tape("otel", tape, settings))["otel.refused"].cause
    assert "since 2026-11-21 21:21 UTC: 3 turns" in cause


async def test_a_reload_says_that_packages_are_missing_and_the_bot_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bubbot.features.otel.encoding.find_spec", lambda _: None)
    async with traced(settings_for(tmp_path), tmp_path, begun=False) as bot:
        with pytest.raises(ConfigError, match=r"nothing is sent\. Install them with"):
            await bot.features.prepare(settings_for(tmp_path, endpoint="http://127.0.0.1:1"))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('endpoint = "localhost:6006"', "has to be a whole web address"),
        ('endpoint = "http://me:hidden-word@h"', "[otel] headers is for keys"),
        ('headers = "hidden-word"', "has to be pairs such as authorization=Bearer KEY"),
        ('headers = "a b=hidden-word"', "has to be pairs"),
        ('content = "some"', "must be one of off, redacted, full"),
        ("timeout = 0", "must be a number above 0"),
        ('service = ""', "service"),
        ('endpiont = "http://h"', "did you mean 'endpoint'"),
    ],
)
def test_a_wrong_value_gets_a_sentence_that_shows_no_secret(home: Home, text: str, sentence: str) -> None:
    home.config.write_text(f"[otel]\n{text}\n")
    with pytest.raises(ConfigError) as error:
        load(home=home.path)
    assert sentence in str(error.value)
    assert "hidden-word" not in str(error.value)


def test_the_keys_in_headers_are_secrets_of_the_bot(home: Home) -> None:
    (home.path / "key").write_text("authorization=Bearer abcdef-123\nx-team=the-red-one\n")
    home.config.write_text('[otel]\nendpoint = "http://h/otlp"\nheaders_file = "key"\n')
    settings = load(home=home.path)
    assert {"Bearer abcdef-123", "abcdef-123", "the-red-one"} <= set(OtelConfig.of(settings).secrets)
    assert settings.section(OtelSettings).url == "http://h/otlp/v1/traces"
    assert settings.section(OtelSettings).read_headers() == {
        "authorization": "Bearer abcdef-123",
        "x-team": "the-red-one",
    }


def test_an_address_may_name_the_path_or_leave_it_out() -> None:
    urls = {OtelSettings(endpoint=text).url for text in ("http://h", "http://h/", "http://h/v1/traces")}
    assert urls == {"http://h/v1/traces"}
    assert OtelSettings().url == OtelSettings(endpoint="").url == ""
