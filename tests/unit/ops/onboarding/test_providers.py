"""The providers that init offers, and the models it suggests."""

from __future__ import annotations

import pytest

from bubbot.models.catalogue.keys import PROVIDER_KEY_VARIABLES
from bubbot.models.catalogue.sizes import find_input_limit
from bubbot.ops.onboarding.providers import PROVIDER_OPTIONS, describe_model, suggest_models
from bubbot.ops.onboarding.questions import LANGUAGE_NAMES
from bubbot.ports.model import ListedModel
from bubbot.texts import Texts
from bubbot.texts.catalogue import list_languages

OPENAI = PROVIDER_OPTIONS["openai"]


@pytest.mark.parametrize("name", PROVIDER_OPTIONS)
def test_each_says_what_it_needs_and_suggests_what_is_known(name: str) -> None:
    option = PROVIDER_OPTIONS[name]
    assert bool(option.keys_page) is not bool(option.address)
    assert "needs a" in option.describe(Texts())
    if option.keys_page:
        assert option.name in PROVIDER_KEY_VARIABLES
    for model in option.models:
        assert find_input_limit(f"{option.name}/{model}"), model


def test_without_a_list_those_that_bubbot_knows_are_suggested() -> None:
    assert suggest_models(OPENAI, None) == list(OPENAI.models)
    assert suggest_models(PROVIDER_OPTIONS["ollama"], None) == []


def test_of_a_list_the_known_ones_come_first_then_the_newest_that_chat() -> None:
    names = ("gpt-4o-mini", "gpt-8", "gpt-9", "gpt-9-2030-01-01", "text-embedding-4", "whisper-2", "gpt-9-audio")
    listed = [ListedModel(name, created) for created, name in enumerate(names)]
    assert suggest_models(OPENAI, listed) == ["gpt-4o-mini", "gpt-9", "gpt-8"]
    assert len(suggest_models(OPENAI, [ListedModel(f"m{number}x") for number in range(50)])) == 8


def test_size_and_price_are_said_if_they_are_known() -> None:
    assert describe_model(OPENAI, "gpt-4o-mini", Texts()).startswith(
        "gpt-4o-mini: reads 128,000 tokens, $0.15 and $0.6 for"
    )
    assert describe_model(OPENAI, "gpt-99", Texts()) == "gpt-99"
    assert describe_model(PROVIDER_OPTIONS["server"], "gpt-4o-mini", Texts()) == "gpt-4o-mini"


def test_every_language_has_a_name() -> None:
    assert set(LANGUAGE_NAMES) == set(list_languages("bubbot.texts"))
