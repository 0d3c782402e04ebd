"""What an exported file says is read again: written once more, it has the same bytes, in each format and for random episodes."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bubbot.features.learn.episodes import EpisodeStep, EpisodeTurn, Subtask
from bubbot.features.learn.formats import FORMATS
from bubbot.features.learn.formats.reader import make_call, make_step, make_turn
from bubbot.features.learn.formats.writer import EpisodeHead, ExportFormat
from bubbot.features.learn.rewards import Reward
from bubbot.ports.model import ModelRequest, ToolSpec
from bubbot.tape.entry import JsonObject, TapeEntry, freeze
from bubbot.tape.events import CommandRun

DATE = "2026-11-30T10:00:00+00:00"
words = st.text(st.characters(codec="utf-8"), max_size=12)
said = words.map(str.strip)
values = st.recursive(st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | words, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(words, inner, max_size=2), max_leaves=4)  # fmt: skip
arguments = st.one_of(
    st.dictionaries(words, values, max_size=2).map(lambda value: json.dumps(value, ensure_ascii=False)),
    st.dictionaries(words, values, max_size=2).map(lambda value: json.dumps(value, separators=(",", ":"))),
    words.map(lambda text: json.dumps({"text": text}, ensure_ascii=False)),
    st.sampled_from(["", " ", "{oh", "[1]", '{"a": NaN}', '{"a": 1e999}', '{"a": "\\ud800"}', '{"a": 1, "a": 2}']),
    words,
)
NAMES = ("book_read", "note_save", "no_such_tool")
tool_lists = st.sampled_from([(), ("book_read",), ("book_read", "note_save")])
steps = st.fixed_dictionaries(
    {
        "text": said,
        "calls": st.lists(
            st.tuples(st.sampled_from(NAMES), arguments, words, st.booleans()), max_size=2
        ),  # name, arguments, result, failed
        "model": st.sampled_from(["scripted", "openai/gpt", ""]),
        "usage": st.tuples(st.integers(0, 99), st.integers(0, 99)),
        "cost": st.none() | st.floats(0, 9),
        "joined": st.none() | words,
        "moved": st.booleans() | st.just(False),
        "fails": st.booleans() | st.just(False),
    }
)
turns = st.fixed_dictionaries(
    {
        "asked": st.lists(words, max_size=2),
        "image": st.booleans(),
        "steps": st.lists(steps, max_size=3),
        "tools": tool_lists,
        "system": st.sampled_from(["Be brief.", "Be kind.", ""]),
        "moved": st.booleans(),
        "commands": st.lists(st.tuples(words, words), max_size=2),
        "rewards": st.lists(st.tuples(st.sampled_from(["quality", "tone"]), st.floats(-1, 1)), max_size=2),
        "branches": st.lists(said, max_size=3),
        "chosen": st.integers(0, 3),
        "ordered": st.booleans(),
        "nested": st.booleans(),
        "agent": st.sampled_from(["", "rosi"]),
    }
)


@dataclass
class Chat:
    """A chat as its models are shown it, turn by turn."""

    messages: list[JsonObject] = field(default_factory=list)
    entry: int = 0

    def add(self, role: str, content: object, **fields: Any) -> None:
        self.messages.append(freeze({"role": role, "content": content, **fields}))

    def next_entry(self) -> int:
        self.entry += 1
        return self.entry


def make_tools(names: Sequence[str]) -> tuple[ToolSpec, ...]:
    return tuple(ToolSpec(name, f"It is {name}.", {"type": "object", "properties": {}}) for name in names)


def make_chat_step(chat: Chat, drawn: Any, system: str, tools: Sequence[str], turn: str, fork: str = "") -> EpisodeStep:
    """Let a model answer, and its calls run."""
    entry, text = chat.next_entry(), drawn["text"]
    calls = [] if drawn["fails"] else [(f"call{entry}_{number}", *each) for number, each in enumerate(drawn["calls"])]
    if drawn["fails"]:
        text = ""
    usage = {"input_tokens": drawn["usage"][0], "output_tokens": drawn["usage"][1], "cached_tokens": 0}
    data = {"answered": drawn["model"], "usage": usage} | ({} if drawn["cost"] is None else {"cost": drawn["cost"]})
    data |= {"error": "refused"} if drawn["fails"] else {}
    shown = [{"id": name, "type": "function", "function": {"name": tool, "arguments": typed}} for name, tool, typed, _, _ in calls]  # fmt: skip
    results = [{"content": result, "is_error": failed} for *_, result, failed in calls]
    request = ModelRequest(system, tuple(chat.messages), make_tools(tools))
    made = [make_call(call, result) for call, result in zip(shown, results, strict=True)]
    step = make_step(entry, request, text, made, data=data, date=DATE, turn=turn, fork=fork)
    if text or calls:
        chat.add("assistant", text, **({"tool_calls": shown} if shown else {}))
    for call, result in zip(shown, results, strict=True):
        chat.add("tool", result["content"], tool_call_id=call["id"])
    return step


def make_subtask(chat: Chat, drawn: Any, fork: str, turn: str, label: str, *, is_branch: bool) -> Subtask:
    apart = Chat([*chat.messages], chat.entry)
    inherited = len(apart.messages)
    apart.add("user", "How do we go?")
    found = [make_chat_step(apart, each, "Apart.", ("book_read",), turn, fork) for each in drawn]
    chat.entry = apart.entry
    return Subtask(fork, label, tuple(found), is_branch, inherited)


def make_chat_turn(chat: Chat, drawn: Any, number: int) -> EpisodeTurn | None:
    """Let a turn happen; None if nothing of it is told."""
    name = f"turn{number}"
    if drawn["moved"]:
        chat.messages = chat.messages[-1:] if chat.messages and chat.messages[-1]["role"] == "user" else []
    inherited = len(chat.messages)
    for text in drawn["asked"]:
        parts = [{"type": "text", "text": text}, {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}]  # fmt: skip
        chat.add("user", parts if drawn["image"] else text)
    commands = [command(chat, *each) for each in drawn["commands"]]
    drawn_steps = drawn["steps"] if chat.messages else []
    found = list[EpisodeStep]()
    for each in drawn_steps:
        if each["moved"]:
            chat.messages = chat.messages[-1:] if chat.messages[-1]["role"] == "user" else [freeze({"role": "user", "content": "What was asked."})]  # fmt: skip
        if each["joined"] is not None and found:
            chat.add("user", each["joined"])
        found.append(make_chat_step(chat, each, drawn["system"], drawn["tools"], name))
    plain = {"calls": [], "model": "scripted", "usage": (1, 2), "cost": 0.5, "fails": False}
    subtasks, orders = list[Subtask](), list[tuple[str, str]]()
    if drawn["branches"]:
        subtasks = [
            make_subtask(chat, [{**plain, "text": text}], f"{name}-b{place}", name, "branch", is_branch=True)
            for place, text in enumerate(drawn["branches"])
        ]
    call = next((call.id for step in found for call in step.calls), None)
    if drawn["ordered"] and call is not None:
        inner = [{**plain, "text": "", "calls": [("book_read", "{}", "words", False)]}, {**plain, "text": "Done."}]
        subtasks.append(make_subtask(chat, inner, f"{name}-o", name, "counter", is_branch=False))
        orders.append((call, f"{name}-o"))
        if drawn["nested"]:
            nested = make_subtask(chat, [{**plain, "text": "Deep."}], f"{name}-o/n", name, "deep", is_branch=False)
            subtasks.append(nested)
            orders.append((subtasks[-2].steps[0].calls[0].id, nested.fork))
    if not (found or commands or subtasks):
        return None
    rewards = [Reward(key, None, value, "", "human", "turn", 1) for key, value in drawn["rewards"]]
    chosen = f"{name}-b{drawn['chosen']}" if drawn["chosen"] < len(drawn["branches"]) else ""
    return make_turn(
        name,
        found,
        subtasks=subtasks,
        commands=commands,
        rewards=rewards,
        orders=orders,
        inherited=inherited if found else 0,
        agent=drawn["agent"] if found else "",
        chosen=chosen,
    )


def command(chat: Chat, typed: str, answer: str) -> TapeEntry:
    return replace(CommandRun("help", typed, "ok", 0, answer).to_entry(), date=DATE, id=chat.next_entry())


def write(form: ExportFormat, episode: Sequence[EpisodeTurn], rewards: dict[str, float]) -> tuple[bytes, int]:
    with closing(form.open()) as writer:
        parts = [*writer.begin(EpisodeHead("e1", "tape", "tg:1", 1, 99, "1", rewards))]
        for turn in episode:
            parts += writer.write(turn)
        parts += writer.end()
        return b"".join(parts), writer.records


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)
@given(drawn=st.lists(turns, min_size=1, max_size=4))
def test_what_was_read_is_written_as_it_was(form: ExportFormat, drawn: list[Any]) -> None:
    chat = Chat()
    episode = [turn for number, each in enumerate(drawn) if (turn := make_chat_turn(chat, each, number)) is not None]
    rewards = {turn.record.id: sum(each.value for each in turn.rewards) for turn in episode if turn.rewards}
    data, records = write(form, episode, rewards)
    if not records:
        return
    read = [*form.read(io.BytesIO(data))]
    found = {turn.record.id: reward for turn, reward in read if reward is not None}
    again, _ = write(form, [turn for turn, _ in read], found)
    assert again.decode() == data.decode()
