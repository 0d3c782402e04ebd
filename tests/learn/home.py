"""A home in which everything has happened that an export has to hold; all of its people allow training and evaluation."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bubbot.arguments.fields import Args
from bubbot.errors import ToolRetry
from bubbot.features.judge.settings import JudgeSettings
from bubbot.models.scripted import ScriptedModel
from bubbot.ports.channel import Inbound, Sender
from bubbot.ports.model import ModelRequest, ModelTraits
from bubbot.ports.turn import Turn
from bubbot.shell_command import CommandContext
from bubbot.tape.entry import timestamp
from bubbot.tool import READS_OWN, Tool, tool
from tests.attached import PHOTO
from tests.callers import run_shell
from tests.e2e.test_images import PNG
from tests.family import GROUP, MEMBER, NAMES, OWNER, Family, family
from tests.judging import answers_of, react, sent
from tests.turns import WAIT, says

CHAT, TEAM = f"tg:{OWNER}", f"tg:{GROUP}"
"""The chat in which most happens, and the group with two agents."""
ODD = "ünï 漢字 🧪🏽 \u202eabc\u2066 </script> {{ 7*7 }} \"'\\ \u2028 \t\x07 end"
LONG = "".join(f"line {number}: the quick brown fox\n" for number in range(4_000))
CHOSEN, REJECTED = "By train, since it is faster.", "By car."
SLOW, HANGING = "Slowly count", "Wait for ever"
SUBTASK = "Count the notes that name a place."


def _call(name: str, /, **arguments: Any) -> dict[str, Any]:
    return {"name": name, "arguments": arguments}


def _rule(when: str, *steps: Mapping[str, Any]) -> dict[str, Any]:
    return {"when": when, "steps": steps}


SCRIPT: Mapping[str, Any] = {
    "rules": [
        _rule("flight to Lisbon", says("I noted the flight.")),
        _rule(
            "Which of my notes",
            {"text": "Let me look.", "calls": [_call("memory_show"), _call("tape_search", query="Lisbon"), _call("book_read")]},
            {"calls": [_call("agent_run", task=SUBTASK, name="counter")]},
            says("Two of them name a place."),
        ),
        _rule("Count the notes", {"calls": [_call("tape_info")]}, says("Two notes name a place.")),
        _rule("in the picture", says("A red and a green dot.")),
        _rule("Read the book", {"calls": [_call("book_read")]}, says("It is about a fox.")),
        _rule(
            "Use bad tools",
            {"calls": [_call("bell_ring", loud=True), {"name": "no_such_tool", "arguments": {}}, {"name": "book_read", "arguments": "{oh"}]},
            says("None of them works."),
        ),
        _rule("Send the post", {"calls": [_call("post_send", to="bob", text="hello")]}, says("I have asked.")),
        _rule("Send another", {"calls": [_call("post_send", to="eve", text="hello")]}, says("I have asked again.")),
        _rule("odd words", says(f"You wrote {ODD}")),
        _rule("like Rome", says("Rome it is.")),
        _rule("Refuse this", {"error": "refused"}),
        _rule(SLOW, {"calls": [_call("slow_count")]}, says("One, two.")),
        _rule("And three", says("Three.")),
        _rule(HANGING, {"text": "I begin.", "calls": [_call("book_read")]}, says("I end.")),
        _rule("Sum it up", {"calls": [_call("tape_handoff", name="phase/two", summary="Trips were planned.")]}, says("A new window.")),
        _rule("What was before", says("Trips, as the summary says.")),
        _rule("say nothing", says("")),
        _rule("Ask Rosi", says("@rosi, what goes into the soup?")),
        _rule("What do we cook", says("Soup.")),
        _rule("goes into the soup", says("Water and salt.")),
        _rule("twice two", says("Four.")),
        _rule("Water the plants", says("They are watered.")),
    ]
}  # fmt: skip


class _NoArgs(Args, frozen=True):
    pass


class _LoudArgs(Args, frozen=True):
    loud: bool


class Recorder(ScriptedModel):
    """The scripted model; it sees images, answers branches by their instruction, and tells when it hangs."""

    def __init__(self) -> None:
        super().__init__(SCRIPT, traits=ModelTraits(images=True))
        self.hangs, self.goes_on = asyncio.Event(), asyncio.Event()

    async def stream(self, request: ModelRequest) -> AsyncIterator[Any]:
        """See `Model.stream`."""
        branch = next(
            (
                text
                for mark, text in ((": give reasons", CHOSEN), (": be brief", REJECTED))
                if f"like this{mark}" in request.system
            ),
            "",
        )
        self._default = [says(branch)] if branch else [says("You said: {text}")]
        if HANGING in str(request.messages[-3:]) and request.messages[-1]["role"] == "tool":
            self.hangs.set()
            await self.goes_on.wait()
        async for item in super().stream(request):
            yield item


@dataclass
class LearnHome:
    """The home.

    Attributes:
        path: its folder.
        requests: what models were sent, in order.
    """

    path: Path
    requests: list[ModelRequest]


def own_tools(is_slow: asyncio.Event, goes_on: asyncio.Event) -> list[Tool]:
    """Make tools whose result is long, that fail, and that wait until they may go on."""

    @tool("book.read", effect=READS_OWN)
    async def book_read(turn: Turn, args: _NoArgs) -> str:
        """Read a book."""
        return LONG

    @tool("bell.ring", effect=READS_OWN)
    async def bell_ring(turn: Turn, args: _LoudArgs) -> str:
        """Ring a bell."""
        raise ToolRetry(f"the bell is broken, loud or not ({args.loud})")

    @tool("slow.count", effect=READS_OWN)
    async def slow_count(turn: Turn, args: _NoArgs) -> str:
        """Count slowly."""
        is_slow.set()
        await goes_on.wait()
        return "one, two"

    return [book_read, bell_ring, slow_count]


async def live(path: Path) -> LearnHome:
    """Let people live in a new home."""
    model, slow = Recorder(), (asyncio.Event(), asyncio.Event())
    tools = own_tools(*slow)
    async with family(path, model, tools=tools, busy="steer") as bench:
        await _talk_alone(bench)
        await _talk_together(bench, slow)
    await _be_killed(path, model, tools)
    async with family(path, model, tools=tools) as bench:
        await bench.quiet()
        await bench.say("like Rome, still?", chat=OWNER)
    return LearnHome(path, model.requests)


async def _talk_alone(bench: Family) -> None:
    async def say(text: str, **fields: Any) -> list[str]:
        return await bench.say(text, OWNER, OWNER, **fields)

    for purpose in ("training", "evaluation"):
        await say(f",consent {purpose} yes")
        await bench.say(f",consent {purpose} yes", MEMBER, MEMBER)
    await say(",memory.save Likes tea")
    await say("Remember: the flight to Lisbon leaves on Friday.")
    await say(",rate 5 It is noted.")
    await say("Which of my notes are about the trip?")
    await react(bench, sent(bench, "Two of them"), "👎", sender=OWNER, chat=OWNER)
    bench.channel.files["photo"] = PNG
    await say("What is in the picture?", attachments=(PHOTO,))
    await say("Read the book")
    await say("Use bad tools")
    await say(",rate 1")
    for order, word in (("Send the post", "approve"), ("Send another", "deny")):
        await say(order)
        await say(f",{word} {bench.cards[-1]}")
    await say(f"odd words: {ODD}")
    await say(",topic rome")
    await say("I like Rome")
    await say(",topic lisbon")
    await say("What of it?")
    await say(',branch.ask prompts="be brief | give reasons" How do we go?')
    await say(",branch.choose 2")
    await say(",rate 4")
    await say("Refuse this")
    await say("say nothing")
    await say(',schedule.add "tomorrow at 9" text="Water the plants"')
    state = bench.daemon.bot.schedule_store
    assert state is not None
    (job,) = [each.job.id for each in state.state.jobs_of(CHAT)]
    await say(f",schedule.run {job}")
    await bench.fire(job)
    answer = answers_of(await bench.entries(OWNER))[0]
    await say(f",correct {answer} I noted the flight on Friday.")
    await say("like Rome, corrected?")
    await say(",retry")
    await say("Sum it up")
    await say("What was before?")
    spans = [entry.id for entry in await bench.entries(OWNER) if entry.name in ("turn/start", "turn/end")][-2:]
    await run_shell("judge label", shell_of(bench), CHAT, f"{spans[0]}-{spans[1]}", "", 2.0, "poor", "")


async def _talk_together(bench: Family, slow: tuple[asyncio.Event, asyncio.Event]) -> None:
    await bench.say("Good morning, all")
    await bench.say("What do we cook, @rosi?", MEMBER)
    await bench.say("Ask Rosi for me", MEMBER)
    await bench.say("@tom, what is twice two?")
    gate = bench.daemon.bot.channel_runtimes["tg"].gate
    await gate.receive(_inbound(f"{SLOW} to two", OWNER))
    is_slow, goes_on = slow
    async with asyncio.timeout(WAIT):
        await is_slow.wait()
    await gate.receive(_inbound("And three?", OWNER))
    goes_on.set()
    await bench.quiet()
    await bench.say("Good night, all", MEMBER)
    await bench.say(",rate 3", MEMBER)


async def _be_killed(path: Path, model: Recorder, tools: list[Tool]) -> None:
    """Leave the home as a process leaves it that is killed while a model answers."""
    copy = path.with_name(f"{path.name}-killed")
    async with family(path, model, tools=tools) as bench:
        turn = asyncio.create_task(bench.say(HANGING, chat=OWNER))
        async with asyncio.timeout(WAIT):
            await model.hangs.wait()
        await asyncio.to_thread(shutil.copytree, path, copy)
        model.goes_on.set()
        await turn
    shutil.rmtree(path)
    copy.rename(path)


def _inbound(text: str, sender: str) -> Inbound:
    now = timestamp(datetime.now(UTC))
    key = f"x{text[:9]}"
    return Inbound("tg", key, GROUP, Sender(sender, NAMES[sender]), text, now, message=key, addressed=True)


def shell_of(bench: Family) -> CommandContext:
    """Return what a shell's commands work on, beside the running bot."""
    bot, numbers = bench.daemon.bot, iter(range(1_000))
    return CommandContext(
        bot.store, bot.workspace, lambda: datetime.now(UTC), lambda: f"shell{next(numbers)}", JudgeSettings()
    )
