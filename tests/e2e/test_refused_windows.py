"""A window that a stricter model refuses is answered all the same: at once where its provider's rules are known, else after
one refusal, from which the bot learns.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from bubbot.ports.channel import Attachment
from tests.e2e import bot
from tests.e2e.model_paths import model_path, via  # noqa: F401 - a fixture among them
from tests.e2e.provider_server import serving_apart
from tests.e2e.strict_server import StrictServer, Told
from tests.e2e.strict_talk import Talk, Turn, addresses
from tests.e2e.test_images import PNG

# Warnings of pydantic about litellm's own code: not ours to mend.
pytestmark = [
    pytest.mark.usefixtures("model_path"),
    *(pytest.mark.filterwarnings(f"ignore::{kind}") for kind in ("DeprecationWarning", "UserWarning")),
]

LOOKS = Told("", calls=(("memory_show", {}),))
PHOTO = Attachment("photo", "photo.png", "image/png", kind="image")


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, no_settings_from_outside: None) -> Iterator[StrictServer]:
    """Every provider, on loopback."""
    with serving_apart(StrictServer()) as strict:
        for name, value in addresses(strict).items():
            monkeypatch.setenv(name, value)
        yield strict


def answered(turn: Turn, text: str = "ok") -> bool:
    """Whether the answer came."""
    return turn.result.status == "answered" and text in turn.result.text


async def assert_learned(talk: Talk, turn: Turn, rule: str) -> None:
    """It was refused once, said so once, and never again: not in the next turn, and not after a restart."""
    model = turn.verdicts[-1].model
    assert answered(turn), turn.result
    assert turn.rules == [rule]
    assert len(turn.verdicts) == 2
    assert turn.result.text.count(model) == 1, turn.result.text
    after = await talk.say("go on")
    assert answered(after), after.result
    assert (after.rules, len(after.verdicts), after.result.text) == ([], 1, "ok")


async def assert_kept(talk: Talk) -> None:
    """A restarted bot asks right at once."""
    async with talk.opened():
        again = await talk.say("and again")
    assert answered(again), again.result
    assert (again.rules, len(again.verdicts)) == ([], 1)


class TestDeclared:
    """Providers whose rules are known are never sent what they refuse."""

    @pytest.mark.parametrize(
        ("model", "told"),
        [
            pytest.param("deepseek/deepseek-reasoner", LOOKS, id="reasoning of another model"),
            pytest.param(
                "mistral/mistral-large-latest", Told("", LOOKS.calls, call_ids=("call_1",)), id="ids of another model"
            ),
        ],
    )
    async def test_a_call_of_another_model(self, tmp_path: Path, server: StrictServer, model: str, told: Told) -> None:
        async with Talk(tmp_path / "home", server, "openai/gpt-4o").opened() as talk:
            assert answered(await talk.say("hello", told))
            await talk.say(f",model {model}")
            turns = [await talk.say("again"), await talk.say("third")]
        assert all(answered(turn) for turn in turns), [turn.result for turn in turns]
        assert [len(turn.verdicts) for turn in turns] == [1, 1]
        assert server.refused == []

    async def test_an_empty_reasoning_of_its_own(self, tmp_path: Path, server: StrictServer) -> None:
        async with Talk(tmp_path / "home", server, "deepseek/deepseek-reasoner").opened() as talk:
            first = await talk.say("hello", Told("", LOOKS.calls, reasoning=""))
            second = await talk.say("again")
        assert answered(first), first.result
        assert answered(second), second.result
        assert server.refused == []

    async def test_a_thought_in_parts_of_its_own(self, tmp_path: Path, server: StrictServer) -> None:
        """It sends its thoughts as parts of the content, and takes no key for them."""
        async with Talk(tmp_path / "home", server, "mistral/mistral-large-latest").opened() as talk:
            first = await talk.say("hello", Told("", LOOKS.calls, reasoning="I think."))
            second = await talk.say("again")
        assert answered(first), first.result
        assert answered(second), second.result
        assert server.refused == []

    async def test_a_person_speaks_after_a_result(self, tmp_path: Path, server: StrictServer) -> None:
        """The turn ended before the model had said what it made of the result."""
        async with Talk(tmp_path / "home", server, "mistral/mistral-large-latest").opened() as talk:
            assert not answered(await talk.say("hello", LOOKS, Told("no credit left", status=402)))
            turn = await talk.say("again")
        assert answered(turn), turn.result
        assert server.refused == []


class TestLearned:
    """A server of one's own, of which nothing is known."""

    async def test_reasoning_of_another_model(self, tmp_path: Path, server: StrictServer) -> None:
        talk = Talk(tmp_path / "home", server, "openai/gpt-4o")
        async with talk.opened():
            assert answered(await talk.say("hello", LOOKS))
            await talk.say(",model openai/deepseek-reasoner")
            await assert_learned(talk, await talk.say("again"), "reasoning_back")
        await assert_kept(talk)

    async def test_thoughts_of_another_model(self, tmp_path: Path, server: StrictServer) -> None:
        """They are those of a model at the same address, and not its own."""
        talk = Talk(tmp_path / "home", server, "openai/mistral-large-latest")
        async with talk.opened():
            told = Told("", LOOKS.calls, reasoning="I think.", call_ids=("abcdefghi",))
            assert answered(await talk.say("hello", told))
            await talk.say(",model openai/deepseek-reasoner")
            await assert_learned(talk, await talk.say("again"), "reasoning_back")
        await assert_kept(talk)

    async def test_ids_of_another_model(self, tmp_path: Path, server: StrictServer) -> None:
        talk = Talk(tmp_path / "home", server, "openai/gpt-4o")
        async with talk.opened():
            assert answered(await talk.say("hello", LOOKS))
            await talk.say(",model openai/mistral-large-latest")
            await assert_learned(talk, await talk.say("again"), "ids_of_9")
        await assert_kept(talk)

    async def test_people_in_a_row_after_a_failed_turn(self, tmp_path: Path, server: StrictServer) -> None:
        talk = Talk(tmp_path / "home", server, "openai/devstral-small")
        async with talk.opened():
            assert not answered(await talk.say("one", Told("a passing trouble", status=400)))
            turn = await talk.say("two")
            await assert_learned(talk, turn, "alternation")
        await assert_kept(talk)

    @pytest.mark.sampled(3)
    @pytest.mark.parametrize(
        ("name", "rule"),
        [
            ("gpt-4o-mini", "text_only"),
            ("gpt-4-turbo", "no_images"),
            ("gpt-4.1", "plain_text"),
            ("gpt-4.1-mini", "no_images"),
        ],
    )
    async def test_a_server_that_takes_text(self, tmp_path: Path, server: StrictServer, name: str, rule: str) -> None:
        """It borrows the name of a model that sees."""
        talk = Talk(tmp_path / "home", server, f"openai/{name}", files={"photo": PNG})
        async with talk.opened():
            turn = await talk.say("What is this?", attachments=(PHOTO,))
            assert "image_url" in str(turn.verdicts[0].body)
            assert "What is this?" in str(turn.verdicts[1].body)
            await assert_learned(talk, turn, rule)
            again = await talk.say("And this?", attachments=(PHOTO,))
            assert (answered(again), again.rules) == (True, [])
        await assert_kept(talk)

    async def test_a_model_without_tools(self, tmp_path: Path, server: StrictServer) -> None:
        talk = Talk(tmp_path / "home", server, "ollama_chat/gemma3:4b")
        async with talk.opened():
            await assert_learned(talk, await talk.say("hello"), "no_tools")
        await assert_kept(talk)

    async def test_a_deployment_that_wants_the_newer_limit(self, tmp_path: Path, server: StrictServer) -> None:
        talk = Talk(tmp_path / "home", server, "openai/my-deployment", keys={"max_tokens": 500})
        async with talk.opened():
            turn = await talk.say("hello")
            await assert_learned(talk, turn, "newer_limit")
            assert turn.verdicts[-1].body["max_completion_tokens"] == 500
        await assert_kept(talk)

    async def test_a_server_without_stream_options(self, tmp_path: Path, server: StrictServer) -> None:
        talk = Talk(tmp_path / "home", server, "openai/qwen2.5-7b")
        async with talk.opened():
            turn = await talk.say("hello")
            await assert_learned(talk, turn, "no_stream_options")
            assert "stream_options" not in turn.verdicts[-1].body
        await assert_kept(talk)

    async def test_a_refusal_of_ids_takes_no_image_away(self, tmp_path: Path, server: StrictServer) -> None:
        """Its words speak of strings, as those of servers that take text alone."""
        talk = Talk(tmp_path / "home", server, "openai/gpt-4-turbo", files={"photo": PNG})
        async with talk.opened():
            await talk.say(",model openai/gpt-4o")
            assert answered(await talk.say("What is this?", attachments=(PHOTO,)))
            turn = await talk.say("look", Told("", LOOKS.calls, call_ids=("x" * 65,)))
        assert (answered(turn), turn.rules) == (True, ["ids_of_40"]), turn.result
        assert "image_url" in str(turn.verdicts[-1].body)

    async def test_white_space_beside_calls(self, tmp_path: Path, server: StrictServer) -> None:
        talk = Talk(tmp_path / "home", server, "openai/claude-sonnet-4-5")
        async with talk.opened():
            turn = await talk.say("hello", Told("\n", LOOKS.calls))
            assert answered(turn), turn.result
            assert turn.rules == ["no_blank"]
            after = [await talk.say("go on", LOOKS), await talk.say("and on")]
            assert [turn.rules for turn in after] == [[], []]
        await assert_kept(talk)

    async def test_one_refusal_teaches_all_that_a_template_wants(self, tmp_path: Path, server: StrictServer) -> None:
        """People in a row; then a result that nobody spoke about; and a window that opens with its anchor."""
        talk = Talk(tmp_path / "home", server, "openai/devstral-small")
        async with talk.opened():
            assert not answered(await talk.say("one", Told("a passing trouble", status=400)))
            assert (await talk.say("two")).rules == ["alternation"]
            assert not answered(await talk.say("three", LOOKS, Told("a passing trouble", status=400)))
            turns = [await talk.say("four")]
            await talk.say(",handoff name=trip summary=booked")
            turns += [await talk.say("five"), await talk.say("six")]
        assert [(answered(turn), turn.rules) for turn in turns] == [(True, [])] * 3

    async def test_equal_calls_of_another_model(self, tmp_path: Path, server: StrictServer) -> None:
        """litellm leaves out the second of them for Gemini."""
        name = "gemini/gemini-2.5-flash" if via() == "litellm" else "openai/gemini-2.5-flash"
        async with Talk(tmp_path / "home", server, "openai/gpt-4o").opened() as talk:
            assert answered(await talk.say("hello", Told("", LOOKS.calls * 2)))
            await talk.say(f",model {name}")
            turns = [await talk.say("again"), await talk.say("third")]
        assert [(answered(turn), len(turn.verdicts)) for turn in turns] == [(True, 1)] * 2

    async def test_a_call_of_gemini_goes_back_signed(self, tmp_path: Path, server: StrictServer) -> None:
        name = "gemini/gemini-3-pro-preview" if via() == "litellm" else "openai/gemini-3-pro-preview"
        async with Talk(tmp_path / "home", server, name).opened() as talk:
            turn = await talk.say("hello", Told("", (("memory_show", {}), ("tape_info", {}))), LOOKS)
        assert (answered(turn), len(turn.verdicts)) == (True, 3), turn.result
        assert server.refused == []

    async def test_what_nothing_helps_against_names_a_way_out(self, tmp_path: Path, server: StrictServer) -> None:
        async with Talk(tmp_path / "home", server, "openai/gpt-4o").opened() as talk:
            turn = await talk.say("hello", *[Told("the moon is full", status=400)] * 2)
        assert turn.result.status == "failed"
        assert (len(turn.verdicts), ",new" in turn.result.text) == (1, True), turn.result.text

    async def test_doctor_names_what_was_learned(self, tmp_path: Path, server: StrictServer) -> None:
        talk = Talk(tmp_path / "home", server, "openai/qwen2.5-7b")
        async with talk.opened():
            await talk.say("hello")
        env = {"BUBBOT_MODEL__NAME": talk.name, **addresses(server)}
        done = await asyncio.to_thread(bot.run, talk.home, "doctor", "--offline", "--json", env=env)
        [found] = [each for each in json.loads(done.stdout)["findings"] if each["id"] == "model.learned"]
        assert "openai/qwen2.5-7b" in str(found)
        assert "stream_options" in str(found)
