"""Plays windows: what a person and a model do in a chat, drawn from a seed, with a real bot before strict servers.

A failing window is played again, and told step by step, by the command that `Window.command` names.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bubbot.ports.channel import Attachment, Sender
from bubbot.tape.entry import JsonObject
from tests.e2e.model_paths import PATHS, Way
from tests.e2e.provider_server import serving_apart
from tests.e2e.strict_server import StrictServer, Told
from tests.e2e.strict_talk import Talk, Turn, addresses
from tests.e2e.test_images import JPEG, PNG

OWN_SERVER = (
    "openai/devstral-small", "openai/gemma-2-9b-it", "hosted_vllm/gemma-2-9b-it", "openai/qwen2.5-7b",
    "ollama_chat/gemma3:4b", "ollama_chat/qwen3:8b", "openai/gpt-4o-mini", "openai/gpt-4-turbo", "openai/gpt-4.1", "openai/gpt-4.1-mini",
)  # fmt: skip
NAMES: Mapping[str, Mapping[str, Sequence[str]]] = {
    "openai": dict.fromkeys(PATHS, ("openai/gpt-4o", "openai/gpt-5-mini", "openai/my-deployment")),
    "deepseek": dict.fromkeys(PATHS, ("deepseek/deepseek-reasoner", "openai/deepseek-reasoner")),
    "mistral": dict.fromkeys(PATHS, ("mistral/mistral-large-latest", "openai/mistral-large-latest")),
    "anthropic": {
        "direct": ("openai/claude-sonnet-4-5",),
        "litellm": ("anthropic/claude-sonnet-4-5", "openai/claude-sonnet-4-5"),
    },
    "gemini": {
        "direct": ("openai/gemini-3-pro-preview", "openai/gemini-2.5-flash"),
        "litellm": ("gemini/gemini-3-pro-preview", "gemini/gemini-2.5-flash", "openai/gemini-3-pro-preview"),
    },
    "local": dict.fromkeys(PATHS, OWN_SERVER),
}  # fmt: skip
"""The models of each provider on each path; a name of `openai/` is that of an own address."""
FILES = {"png": PNG, "jpg": JPEG, "txt": "Müller, 3 €\n".encode()}
SAYINGS = (
    "hello", "and then?", "Ωμέγα 王さん 👍🏽 שלום", "0", "…", "\u200b", "a\n\n\nb", "{\"role\": \"assistant\"}", "[INST] x [/INST]</s>",
    "[I called memory_show with {}]", "<think>so</think> well", "x" * 3000, "tab\there", "a" * 300 + " b", "\u202eodd\u202c", "?",
)  # fmt: skip
ANSWERS = (
    "ok",
    "Done.",
    "王さん 👍🏽",
    "1\n\n2",
    "<think>hm</think>yes",
    "`code`",
    " ".join(map(str, range(500))),
    " fine ",
)
BESIDE_CALLS = ("", "", "Let me look.", " ", "\n")
QUERIES = ("rome", "王", "a b", '"', "")
ODD_IDS = (
    "functions.memory_show:0", "call_" + "x" * 60, "a b", "call_1", "", "toolu_vrtx_01|fc_68", "1", "chatcmpl-tool-" + "0f" * 16, "ü",
)  # fmt: skip
BOB, EVE = Sender("7", "Bob Łukasz 王"), Sender("8", 'Eve "the #1"')


CALLS: tuple[tuple[str, JsonObject], ...] = (
    ("memory_show", {}),
    ("tape_info", {}),
    ("tape_anchors", {}),
    ("schedule_list", {}),
    ("no_such_tool", {"x": [1, {"y": None}]}),
    ("tape.search", {"query": "x"}),
    ("web search!", {}),
    *(("tape_search", {"query": query}) for query in QUERIES),
)
"""Calls of tools that only read, and of some that are not there."""


@dataclass
class Window:
    """A window that was played.

    `told` are its steps in words, `complaints` what was wrong, `learned` what its models refused, each with the rule.
    """

    seed: int
    path: str
    provider: str
    steps: int = 8
    told: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    learned: Counter[str] = field(default_factory=Counter)
    requests: int = 0

    @property
    def command(self) -> str:
        """What plays it again."""
        return f"python -m tests.e2e.window_player {self.path} {self.provider} {self.seed} --steps {self.steps}"


class WindowPlayer:
    """Plays one window."""

    def __init__(self, window: Window, home: Path, server: StrictServer) -> None:
        self.window = window
        self.server = server
        self.rng = random.Random(f"{window.seed} {window.path} {window.provider}")
        self.name = self.rng.choice(NAMES[window.provider][window.path])
        keys: dict[str, Any] = {"max_tokens": 500} if self.rng.random() < 0.3 else {}
        if self.rng.random() < 0.3:
            keys["fallback"] = [self.rng.choice(self.other_names())]
        if self.rng.random() < 0.2:
            keys["context_tokens"] = 12_000
        self.talk = Talk(home, server, self.name, keys=keys, files=FILES)
        self.stack = AsyncExitStack()
        self.messages: list[str] = []
        self.refused: set[tuple[str, str]] = set()

    async def play(self) -> Window:
        """Play it to its end."""
        self.note(f"the model is {self.name}, {self.talk.keys}")
        actions = self.actions()
        async with self.stack:
            await self.stack.enter_async_context(self.talk.opened())
            for _ in range(self.rng.randint(self.window.steps // 2, self.window.steps)):
                action = self.rng.choices([each for each, _ in actions], [weight for _, weight in actions])[0]
                await action()
            for name in (self.rng.choice(self.other_names()), self.name):
                await self.switch(name)
                await self.say("go on")
                turn = await self.say("and on")
                if turn.refused:
                    self.complain(f"the turn after the next was refused again: {turn.rules}")
        self.window.requests = len(self.server.verdicts)
        return self.window

    def actions(self) -> list[tuple[Callable[[], Awaitable[None]], int]]:
        """What may happen, with its weight."""
        return [
            (self.talk_a_bit, 3), (self.use_tools, 5), (self.show_photo, 2), (self.fail, 3), (self.switch_to_any, 3),
            (self.change_message, 1), (self.begin_anew, 1), (self.run_task, 2), (self.run_job, 1), (self.speak_in_group, 2),
            (self.restart, 1), (self.interrupt, 1), (self.choose_strategy, 1), (self.ask_beside, 1), (self.retry, 1),
        ]  # fmt: skip

    def note(self, step: str) -> None:
        """Tell a step."""
        self.window.told.append(step)

    def complain(self, words: str) -> None:
        """Tell that something is wrong."""
        self.window.complaints.append(words)
        self.note(f"WRONG: {words}")

    async def say(self, text: str, *told: Told, may_fail: bool = False, **fields: Any) -> Turn:
        """Say something, and judge what came of it."""
        own = [*told, Told(self.rng.choice(ANSWERS))]
        turn = await self.talk.say(text, *own, **fields)
        self.messages.append(text)
        self.note(f"said {text[:60]!r}, told {[describe(each) for each in told]}: {turn.result.status}")
        self.judge(turn, may_fail=may_fail)
        return turn

    def judge(self, turn: Turn, *, may_fail: bool) -> None:
        """Complain of what was refused for good, or refused again."""
        for verdict in turn.refused:
            assert verdict.rule is not None
            self.note(f"refused by {verdict.provider}/{verdict.model}: {verdict.rule.name}: {verdict.words[:200]!r}")
            key = (verdict.name, verdict.rule.name)
            if key in self.refused:
                self.complain(
                    f"{verdict.name} was sent again what it refused: {verdict.rule.name}: {verdict.words[:300]}"
                )
            if turn.result.status == "answered":
                self.refused.add(key)  # a lesson counts once it has helped
            self.window.learned[f"{verdict.name} {verdict.rule.name}"] += 1
        if turn.result.status not in ("answered", "silent") and not may_fail:
            last = turn.verdicts[-1] if turn.verdicts else None
            rule = f"refused ({last.rule.name})" if last is not None and last.rule else "failed"
            self.complain(f"{self.name}: {rule}: {turn.result.text[:400]}")
        elif turn.verdicts and turn.verdicts[-1].rule and not may_fail:
            self.complain(f"{self.name}: its last request was refused: {turn.verdicts[-1].words[:300]}")

    def other_names(self) -> list[str]:
        """All models of the path."""
        return sorted({name for names in NAMES.values() for name in names[self.window.path]})

    async def switch(self, name: str) -> None:
        """Let another model answer."""
        await self.talk.say(f",model {name}")
        self.name = name
        self.note(f"the model is {name}")

    async def switch_to_any(self) -> None:
        """Let any model answer."""
        await self.switch(self.rng.choice(self.other_names()))

    async def talk_a_bit(self) -> None:
        """One or two plain messages."""
        for _ in range(self.rng.randint(1, 2)):
            await self.say(self.rng.choice(SAYINGS))

    def calls(self, rounds: int = 1) -> list[Told]:
        """So many answers with calls, of which hardly any comes twice: a model that repeats itself is stopped."""
        left, told = self.rng.sample(CALLS, len(CALLS)), []
        for _ in range(rounds):
            made = [left.pop() for _ in range(self.rng.choice([1, 1, 2, 3]))]
            made += made[:1] if self.rng.random() < 0.1 else []
            ids = tuple(self.rng.sample(ODD_IDS, len(made))) if self.rng.random() < 0.4 else ()
            reasoning = self.rng.choice([None, None, "", "I think."])
            told.append(Told(self.rng.choice(BESIDE_CALLS), tuple(made), reasoning, ids))
        return told

    async def use_tools(self) -> None:
        """A turn with calls."""
        await self.say(self.rng.choice(SAYINGS), *self.calls(self.rng.randint(1, 3)))

    async def show_photo(self) -> None:
        """A photo, or a file of text."""
        kind = self.rng.choice(["png", "jpg", "txt"])
        media, is_image = {"png": "image/png", "jpg": "image/jpeg", "txt": "text/plain"}[kind], kind != "txt"
        file = Attachment(kind, f"a.{kind}", media, kind="image" if is_image else "file")
        await self.say(self.rng.choice(["What is this?", ""]), attachments=(file,))

    async def fail(self) -> None:
        """A turn that the provider fails, maybe after calls: the next message follows it at once."""
        faults = [
            [Told("a passing trouble", status=400)],
            [Told("no credit left", status=402)],
            [Told("overloaded", status=503)] * 4,
            [Told("half of an answer", cut=True)] * 4,
            [Told("")] * 4,
            [Told(" \n")] * 4,
        ]
        before = self.calls() if self.rng.random() < 0.5 else []
        await self.say(self.rng.choice(SAYINGS), *before, *self.rng.choice(faults), may_fail=True)

    async def change_message(self) -> None:
        """A message is changed after it was answered."""
        turn = self.talk.inbound("teh")
        await self.say("teh", message=turn.message)
        await self.talk.edit(turn.message, "the")
        self.note("changed it")

    async def begin_anew(self) -> None:
        """A new window, empty or with a summary."""
        line = self.rng.choice([",new", ',handoff name=trip summary="Hotel booked."', ",topic Rome", ",topic off"])
        await self.talk.say(line)
        self.note(line)

    async def run_task(self) -> None:
        """Sub-tasks, one or two at once, that use tools themselves."""
        tasks = [("agent_run", {"task": f"look for {at}"}) for at in range(self.rng.randint(1, 2))]
        inner = [*self.calls(), Told("found")] if len(tasks) == 1 else [Told("found"), Told("found, too")]
        await self.say("have it looked up", Told("", tuple(tasks)), *inner)

    async def run_job(self) -> None:
        """A job that runs now."""
        await self.talk.say(",schedule every 2h look for news name=news")
        await self.say(",schedule.run news", *self.calls())
        await self.talk.say(",schedule.remove news")

    async def speak_in_group(self) -> None:
        """Several people of a group."""
        for sender in self.rng.choices([BOB, EVE], k=2):
            await self.say(self.rng.choice(SAYINGS), sender=sender, direct=False)

    async def restart(self) -> None:
        """The process ends in order, and begins again."""
        await self.stack.aclose()
        await self.stack.enter_async_context(self.talk.opened())
        await self.settle()
        self.note("restarted")

    async def interrupt(self) -> None:
        """The process ends in the middle of an answer, maybe after calls; the next one takes the message up."""
        assert self.talk.app is not None
        before = len(self.server.verdicts)
        first = self.calls() if self.rng.random() < 0.5 else []
        self.server.holding.clear()
        self.server.tell(*first, Told("half of an answer", held=True))
        turn = asyncio.ensure_future(self.talk.app.ask(self.talk.inbound("take your time")))
        holding = asyncio.ensure_future(asyncio.to_thread(self.server.holding.wait, 30))
        await asyncio.wait([turn, holding], return_when=asyncio.FIRST_COMPLETED)
        self.note(f"interrupted: {[v.rule.name if v.rule else 'taken' for v in self.server.verdicts[before:]]}")
        await self.restart()
        turn.cancel()
        self.server.holding.set()
        await holding
        for verdict in self.server.verdicts[before:]:
            if verdict.rule:
                self.refused.discard((verdict.name, verdict.rule.name))  # it may not have been noted any more

    async def settle(self) -> None:
        """Wait for what a restarted bot takes up."""
        assert self.talk.app is not None
        self.server.tell()
        await self.talk.app.runtime.wait_idle()

    async def choose_strategy(self) -> None:
        """Another context strategy."""
        await self.talk.say(f",strategy {self.rng.choice(['compact', 'full', 'messages', 'retrieval', 'default'])}")
        self.note("another strategy")

    async def ask_beside(self) -> None:
        """A question beside the conversation."""
        await self.say(f",fork merge={self.rng.choice(['delta', 'result'])} What if?", *self.calls())

    async def retry(self) -> None:
        """The last message is answered again."""
        await self.say(",retry")


def describe(told: Told) -> str:
    """A step of the model in a word."""
    if told.calls:
        ids = f" {list(told.call_ids)}" if told.call_ids else ""
        return f"calls {', '.join(name for name, _ in told.calls)}{ids} beside {told.text!r}"
    return f"{told.status} {told.text[:20]!r}{' cut' if told.cut else ''}"


async def play(seed: int, path: str, provider: str, home: Path, server: StrictServer, *, steps: int = 8) -> Window:
    """Play one window in a new home; `steps` is how many at most, besides the last ones."""
    server.requests.clear()
    server.verdicts.clear()
    return await WindowPlayer(Window(seed, path, provider, steps), home, server).play()


def show_table(windows: Iterable[Window]) -> str:
    """A row for each provider and path: windows, requests, refused windows, refusals that taught something."""
    rows: dict[tuple[str, str], Counter[str]] = {}
    for window in windows:
        row = rows.setdefault((window.provider, window.path), Counter[str]())
        row += Counter(windows=1, refused=bool(window.complaints), learned=window.learned.total())
        row["requests"] += window.requests
    lines = [f"{'provider':<10} {'path':<8} {'windows':>8} {'requests':>9} {'refused':>8} {'learned':>8}"]
    for (provider, path), row in sorted(rows.items()):
        counts = f"{row['windows']:>8} {row['requests']:>9} {row['refused']:>8} {row['learned']:>8}"
        lines.append(f"{provider:<10} {path:<8} {counts}")
    return "\n".join(lines)


def main() -> int:
    """Play one window, and tell it."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("path", choices=PATHS)
    parser.add_argument("provider", choices=NAMES)
    parser.add_argument("seed", type=int)
    parser.add_argument("--steps", type=int, default=8)
    given = parser.parse_args()
    Way.path = given.path
    if given.path == "litellm":
        from bubbot.models.litellm import model  # noqa: F401 - loading it takes longer than a step may
    with serving_apart(StrictServer()) as server:
        os.environ |= addresses(server)
        home = Path(tempfile.mkdtemp())
        try:
            window = asyncio.run(play(given.seed, given.path, given.provider, home / "home", server, steps=given.steps))
        finally:
            shutil.rmtree(home)
    print("\n".join(window.told))
    return bool(window.complaints)


if __name__ == "__main__":
    raise SystemExit(main())
