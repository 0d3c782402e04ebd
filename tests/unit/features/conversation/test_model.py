"""`,model`: which model answers a session is a fact of its tape."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bubbot.errors import ConfigError
from bubbot.models.scripted import ScriptedModel
from bubbot.ports.channel import Role
from bubbot.ports.model import Model, ModelTraits
from bubbot.runtime.models import SessionModels
from bubbot.stores.inmemory import InMemoryStore
from bubbot.tape.store import TapeStore
from tests.turns import Bench, Options, no_lessons, running

SMALL = ModelTraits(tools=False, short_prompt=True, notice="A small model.")


class Shelf:
    """Models by name; `made` are those that were asked for."""

    def __init__(self) -> None:
        self.made: list[ScriptedModel] = []

    def __call__(self, name: str) -> Model:
        if name == "broken":
            raise ConfigError("[model] script is missing")
        if name not in {"other", "local"}:
            raise ConfigError(f"there is no model {name}")
        script = {"default": [{"text": f"{name}: {{text}}"}]}
        self.made.append(ScriptedModel(script, name=name, traits=SMALL if name == "local" else None))
        return self.made[-1]


@pytest.fixture
def shelf() -> Shelf:
    return Shelf()


@pytest.fixture
def options(shelf: Shelf) -> Options:
    return Options(load=shelf)


async def models_of(bench: Bench) -> list[object]:
    """The model of each step."""
    return [data["model"] for data in await bench.events("loop.step")]


async def test_without_a_name_it_says_which_one_answers(memory_store: InMemoryStore, options: Options) -> None:
    async with running(memory_store, ScriptedModel(), options) as bench:
        answer = (await bench.say(",model")).text
        assert answer == "scripted answers here. You can choose: scripted, other. Switch with ,model NAME."
        assert await bench.events("model/switched") == []


async def test_a_switch_is_a_fact_and_the_next_answer_comes_from_there(store: TapeStore, options: Options) -> None:
    async with running(store, ScriptedModel(), options) as bench:
        await bench.say("one")
        assert (await bench.say(",model other")).text == "other answers here from now on, also after a restart."
        assert (await bench.say("two")).text == "other: two"
        assert await models_of(bench) == ["scripted", "other"]
        assert await bench.events("model/switched") == [{"model": "other", "before": "scripted"}]
        assert "other answers here." in (await bench.say(",model")).text


async def test_it_survives_a_restart_and_stays_in_its_session(store: TapeStore, options: Options) -> None:
    async with running(store, ScriptedModel(), options) as bench:
        await bench.say(",model other")
    async with running(store, ScriptedModel(), options, life="second") as bench:
        assert (await bench.say("two")).text == "other: two"
        assert (await bench.say("two", chat="elsewhere")).text == "You said: two"


async def test_one_can_go_back_and_each_model_is_made_once(
    memory_store: InMemoryStore, options: Options, shelf: Shelf
) -> None:
    async with running(memory_store, ScriptedModel(), options) as bench:
        for name in ("other", "scripted", "other", "scripted"):
            await bench.say(f",model {name}")
        assert (await bench.say("two")).text == "You said: two"
        assert [model.name for model in shelf.made] == ["other"]


async def test_the_conversation_goes_on_in_the_same_window(memory_store: InMemoryStore, options: Options) -> None:
    async with running(memory_store, ScriptedModel(), options) as bench:
        await bench.say("one")
        await bench.say(",model other")
        assert "one" in (await bench.say(",context")).text
        assert await bench.events("handoff") == []


async def test_to_and_from_the_local_model_a_new_window_opens(memory_store: InMemoryStore, options: Options) -> None:
    async with running(memory_store, ScriptedModel(), options) as bench:
        await bench.say("one")
        answer = (await bench.say(",model local")).text
        assert "A new window opens here" in answer
        assert answer.endswith("A small model.")
        assert "user: one" not in (await bench.say(",context")).text
        await bench.say("two")
        await bench.say(",model scripted")
        assert [data["name"] for data in await bench.events("handoff")] == ["session/model", "session/model"]
        states = [data["state"] for data in await bench.events("handoff")]
        assert [state["model"] for state in states] == ["local", "scripted"]


@pytest.mark.parametrize("name", ["nonsense", "broken", "x" * 500])
async def test_what_there_is_not_is_answered_with_what_there_is(
    memory_store: InMemoryStore, options: Options, name: str
) -> None:
    async with running(memory_store, ScriptedModel(), options) as bench:
        answer = (await bench.say(f",model {name}")).text
        assert "You can choose: scripted, other." in answer or "name is longer than 200 characters" in answer
        assert await bench.events("model/switched") == []
        assert (await bench.say("one")).text == "You said: one"


async def test_the_one_that_answers_already_is_no_new_fact(memory_store: InMemoryStore, options: Options) -> None:
    async with running(memory_store, ScriptedModel(), options) as bench:
        assert (await bench.say(",model scripted")).text == "scripted answers here already."
        assert await bench.events("model/switched") == []


async def test_only_the_owner_switches_and_everybody_may_ask(memory_store: InMemoryStore, options: Options) -> None:
    async with running(memory_store, ScriptedModel(), replace(options, role=Role.ADMIN)) as bench:
        assert "only the owner" in (await bench.say(",model other")).text
        assert "scripted answers here." in (await bench.say(",model")).text
        assert await bench.events("model/switched") == []


async def test_a_model_that_is_gone_after_a_restart_is_told_and_can_be_left(
    memory_store: InMemoryStore, options: Options
) -> None:
    async with running(memory_store, ScriptedModel(), options) as bench:
        await bench.say(",model other")
    async with running(memory_store, ScriptedModel(), life="second") as bench:
        result = await bench.say("hello")
        assert result.status == "failed"
        assert "switched to other: there is no model other. ,model switches to another" in result.text
        assert "No model answers here" in (await bench.say(",model")).text
        await bench.say(",model scripted")
        assert (await bench.say("hello")).text == "You said: hello"


async def test_every_model_that_was_made_is_closed(shelf: Shelf) -> None:
    closed: list[str] = []

    class Closing(ScriptedModel):
        async def aclose(self) -> None:
            closed.append(self.name)

    models = SessionModels(Closing(name="first"), lambda name: Closing(name=name), tuple, no_lessons())
    assert models.get_model("second") is models.get_model("second")
    await models.aclose()
    assert closed == ["first", "second"]
