"""Which model a name stands for."""

from __future__ import annotations

from pathlib import Path

import pytest

from bubbot.app.models import choose_model, turns_at_once
from bubbot.app.settings import load
from bubbot.errors import ConfigError, ModelError
from bubbot.home import Home
from bubbot.models.fallback import FallbackModel
from bubbot.models.lazy import LazyModel
from bubbot.models.scripted import ScriptedModel
from bubbot.models.unconfigured import KeylessModel
from bubbot.ports.model import Model, ModelOptions, ModelRequest
from bubbot.settings.loader import BotSettings, ModelSettings, Settings


@pytest.fixture(autouse=True)
def with_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys of the providers that these tests name; one test takes them away again."""
    for name in ("OPENAI_API_KEY", "OPENROUTER_API_KEY"):
        monkeypatch.setenv(name, "sk-test-1")


def chosen(name: str, **settings: object) -> object:
    return choose_model(Settings(model=ModelSettings.model_validate({"name": name, **settings})), Home(Path("unused")))


@pytest.mark.parametrize("name", ["openai/gpt-4o", "ollama_chat/qwen3", "openrouter/deepseek/deepseek-chat"])
def test_a_provider_and_a_model_wait_until_they_are_needed(name: str) -> None:
    model = chosen(name)
    assert isinstance(model, LazyModel)
    assert model.name == name


def test_the_size_of_a_known_model_is_known_before_it_is_loaded() -> None:
    model = chosen("openai/gpt-4o")
    assert isinstance(model, LazyModel)
    assert model.traits.context_tokens == 128000


def test_a_model_of_ours_is_there_at_once() -> None:
    assert isinstance(chosen("scripted"), ScriptedModel)


@pytest.mark.parametrize("name", ["gpt-4o", "litellm", "openai/"])
def test_a_name_without_a_model_is_told_what_names_look_like(name: str) -> None:
    with pytest.raises(ConfigError, match=r"'provider/model', such as 'openai/gpt-4o', or one of local, scripted"):
        chosen(name)


def test_fallbacks_come_as_a_list_or_in_one_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config.toml").write_text('[model]\nfallback = ["a/b", "c/d"]\n')
    assert load(home=tmp_path).model.fallback == ["a/b", "c/d"]
    monkeypatch.setenv("BUBBOT_MODEL__FALLBACK", "e/f, g/h")
    assert load(home=tmp_path).model.fallback == ["e/f", "g/h"]
    (tmp_path / "config.toml").write_text("[model]\nfallback = 3\n")
    monkeypatch.delenv("BUBBOT_MODEL__FALLBACK")
    with pytest.raises(ConfigError, match="a list of texts"):
        load(home=tmp_path)


@pytest.mark.parametrize("name", ["../../etc/passwd", "opnai/gpt-4o", "litellm/x"])
def test_a_provider_that_nobody_knows_is_refused_at_once(name: str) -> None:
    with pytest.raises(ConfigError, match=r"^\[model\] name is '.*litellm knows no provider"):
        chosen(name)
    with pytest.raises(ConfigError, match=r"^the name is '.*litellm knows no provider"):
        choose_model(Settings(), Home(Path("unused")), name)


@pytest.mark.parametrize("name", ["local", "nobody/x"])
def test_a_fallback_that_nobody_knows_is_refused_at_the_start(name: str) -> None:
    with pytest.raises(ConfigError, match=rf"^\[model\] fallback is '{name}'"):
        chosen("openai/gpt-4o", fallback=["anthropic/x", name])


@pytest.mark.parametrize(("name", "turns"), [("openai/gpt-4o", 64), ("scripted", 64), ("local", 8), ("", 8)])
def test_so_many_turns_run_at_once_as_suits_the_model(name: str, turns: int) -> None:
    assert turns_at_once(Settings(model=ModelSettings(name=name))) == turns
    assert turns_at_once(Settings(bot=BotSettings(turns_at_once=3), model=ModelSettings(name=name))) == 3


async def test_a_model_without_its_key_says_so_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    model = chosen("openai/gpt-5")
    assert isinstance(model, KeylessModel)
    assert model.name == "openai/gpt-5"
    told = "openai/gpt-5 needs a key, and neither [model] api_key nor OPENAI_API_KEY is set here."
    with pytest.raises(ModelError) as caught:
        [one async for one in model.stream(ModelRequest("", ()))]
    assert (str(caught.value), model.traits.notice) == (told, told)
    assert isinstance(chosen("openai/gpt-5", api_key="sk-1"), LazyModel)
    assert isinstance(chosen("openai/gpt-5", api_base="http://127.0.0.1:1"), LazyModel)
    # One that answers in its place needs no key of the first.
    assert isinstance(chosen("openai/gpt-5", fallback=["openrouter/x"]), FallbackModel)
    assert isinstance(chosen("openai/gpt-5", fallback=["anthropic/x"]), KeylessModel)


@pytest.mark.parametrize("name", ["anthropic/claude-sonnet-4-5", "openai/gpt-4o"])
def test_credentials_in_the_address_beside_a_key_are_refused_and_not_shown(name: str) -> None:
    with pytest.raises(ConfigError, match=r"^\[model\] api_base holds a user name or a password") as caught:
        chosen(name, api_base="http://user:pl4nted@127.0.0.1:1/v1", api_key="sk-1")
    assert "pl4nted" not in str(caught.value)


def test_credentials_in_the_address_without_a_key_are_sent() -> None:
    assert isinstance(chosen("ollama_chat/qwen3", api_base="http://user:secret@127.0.0.1:1"), LazyModel)


async def test_the_key_of_the_configured_provider_is_no_key_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    settings = Settings(model=ModelSettings.model_validate({"name": "anthropic/x", "api_key": "sk-1"}))
    assert isinstance(choose_model(settings, Home(Path("unused"))), LazyModel)
    model = choose_model(settings, Home(Path("unused")), "openai/gpt-5")
    assert isinstance(model, KeylessModel)
    with pytest.raises(ModelError, match=r"OPENAI_API_KEY is not set here \(\[model\] api_key is only for"):
        [one async for one in model.stream(ModelRequest("", ()))]


def test_a_model_of_a_plugin_is_not_given_the_key_of_another_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[ModelOptions] = []

    def create(options: ModelOptions) -> Model:
        given.append(options)
        return ScriptedModel(name=options.name)

    monkeypatch.setattr("bubbot.app.models.plugins.load", lambda *_: create)
    private = {"api_key": "sk-1", "api_base": "http://127.0.0.1:1"}
    for name in ("openai/x", "scripted/a"):
        settings = Settings(model=ModelSettings.model_validate({"name": name, **private}))
        choose_model(settings, Home(Path("unused")), "scripted/b")
    assert [private.keys() & one.settings.keys() for one in given] == [set(), private.keys()]
