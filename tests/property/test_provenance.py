"""Words are followed by what they look like: whatever entry holds a word of the world is marked as made of it (T22).

Every person and every page says words that nobody else says. An obedient model copies all words that it is shown wherever
it can write: answers, arguments, memory, handoffs, sub-tasks. Then each entry of each tape has to be at least as foreign as
the most foreign word in it.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from itertools import count
from random import Random
from typing import Any

import pytest

from bubbot.ports.channel import Edit, Quote, Sender
from bubbot.ports.model import ModelEvent, ModelReply, ModelRequest, ToolCall
from bubbot.ports.turn import Turn
from bubbot.runtime import messages
from bubbot.stores.inmemory import InMemoryStore
from bubbot.tape.provenance import Source, most_foreign, source_of
from bubbot.tool import READS_WEB, Tool, tool
from tests.provenance import MEMBER, STRANGER, PageArgs, provenance_options
from tests.turns import Bench, Replying, running

WORD = re.compile(r"zq([opw])[a-z]*\d+zq")
SOURCES = {"o": Source.OWN, "p": Source.PEOPLE, "w": Source.WORLD}
CHATS = ("home", "other")
MOST_WORDS = 6
"""Words that the model copies at once: the newest."""


class Talk:
    """A conversation by chance, and the words that were said in it."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        self._numbers = count(1)

    def word(self, source: str) -> str:
        """A word that nobody has said before."""
        return f"zq{source}{next(self._numbers)}zq"

    def page(self) -> Tool:
        """A tool that reads pages with words of their own."""

        @tool("web.get", effect=READS_WEB)
        async def get(turn: Turn, args: PageArgs) -> str:
            """Read a page."""
            return f"page {self.word('w')}"

        return get

    async def reply(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Copy the words of the request somewhere."""
        seen = f"{request.system} {list(request.messages)}"
        words = " ".join(list(dict.fromkeys(match[0] for match in WORD.finditer(seen)))[-MOST_WORDS:])
        steps = sum(message["role"] == "tool" for message in request.messages[-6:])
        if steps > 3 or self.chance.random() < 0.35:
            yield ModelReply(f"answer {words}")
            return
        yield ModelReply(words, tuple(self.call(words) for _ in range(self.chance.choice((1, 1, 2)))))

    def call(self, words: str) -> ToolCall:
        """A call with the words as arguments."""
        low = self.chance.randrange(1, 60)
        choices: dict[str, str] = {
            "web_get": "{}",
            "memory_save": f'{{"content":"kept {words}","scope":"{self.chance.choice(("chat", "user", "workspace"))}"}}',
            "memory_daily": f'{{"content":"noted {words}"}}',
            "memory_recall": "{}",
            "tape_handoff": f'{{"name":"phase/{self.chance.randrange(4)}","summary":"so far {words}"}}',
            "tape_search": '{"query":"zq"}',
            "tape_read": f'{{"ids":["{low}-{low + 4}"]}}',
            "tape_anchors": "{}",
            "agent_run": f'{{"task":"do {words}","mode":"{self.chance.choice(("delta", "result"))}","steps":2}}',
        }
        name = self.chance.choice(list(choices))
        return ToolCall(f"c{next(self._numbers)}", name, choices[name])

    async def act(self, bench: Bench) -> None:
        """Let somebody say or do something."""
        chat = self.chance.choice(CHATS)
        given: dict[str, Any] = {"chat": chat}
        match self.chance.randrange(12):
            case 0 | 1 | 2:
                await bench.say(f"hello {self.word('o')}", **given)
            case 3:
                await bench.say(f"hello {self.word('p')}", sender=MEMBER, **given)
            case 4:
                await bench.say(f"sent on {self.word('w')}", provenance=Source.WORLD, **given)
            case 5:
                quote = Quote("q", Sender(self.chance.choice((STRANGER, "77")), "Eve"), self.word("w"))
                await bench.say(f"look {self.word('o')}", quote=quote, **given)
            case 6:
                await bench.say(",new", **given)
            case 7:
                await bench.say(self.chance.choice((",topic one", ",topic two", ",topic off")), **given)
            case 8:
                await bench.say(f",resume phase/{self.chance.randrange(4)}", **given)
            case 9:
                scope = self.chance.choice(("", " scope=user", " scope=workspace"))
                await bench.say(f",memory.restore{scope} {self.chance.randrange(1, 8)}", **given)
            case 10:
                scope = self.chance.choice(("", " scope=user"))
                await bench.say(f",memory.daily{scope} mine {self.word('o')}", **given)
            case 11:
                await bench.say(
                    self.chance.choice((",search zq", ",fork think", ",read 3-9", ",memory.recall")), **given
                )
        if self.chance.random() < 0.1:
            message = bench.inbound("changed", external_id="late", **given)
            await bench.say("to be changed", external_id=f"e{next(self._numbers)}", **given)
            edit = Edit(
                "test",
                f"x{next(self._numbers)}",
                chat,
                f"e{next(self._numbers) - 2}",
                Sender(MEMBER),
                self.word("p"),
                message.time,
            )
            await bench.gate.receive(edit)


async def leaks(seed: int, acts: int) -> list[str]:
    """Talk, and return the entries that are marked as less foreign than a word in them."""
    talk, store = Talk(seed), InMemoryStore()
    for life in ("first", "second"):
        async with running(store, Replying(talk.reply), provenance_options(talk.page()), life=life) as bench:
            for _ in range(acts // 2):
                await talk.act(bench)
            await bench.quiet()
    found, held = [], 0
    for tape in await store.tapes():
        if tape.name.startswith("bubbot/inbox"):
            continue  # what has just arrived; the tape of the chat says whose words it is
        for entry in await bench.entries(tape.name):
            words = list(WORD.finditer(f"{entry.payload}"))
            held += bool(words)
            source = most_foreign(*(SOURCES[word[1]] for word in words))
            if most_foreign(source, source_of(entry)) is not source_of(entry):
                found.append(f"{tape.name} #{entry.id} {entry.kind} {entry.name or ''}: {source}, {dict(entry.meta)}")
    assert held > acts
    return found


@pytest.mark.law("T22")
def test_what_is_made_of_foreign_words_says_so() -> None:
    assert asyncio.run(leaks(20261124, 80)) == []


@pytest.mark.proof
@pytest.mark.law("T22")
@pytest.mark.parametrize("seed", range(8))
def test_what_is_made_of_foreign_words_says_so_in_long_talks(seed: int) -> None:
    assert asyncio.run(leaks(seed, 300)) == []


def _without_steps(patch: pytest.MonkeyPatch) -> None:
    """What a step showed, and what a tool read, marks nothing."""
    patch.setattr("bubbot.tape.fork.ForkedTape.raise_source", lambda _self, _source: None)


def _without_copies_of_memory(patch: pytest.MonkeyPatch) -> None:
    """A new version of the memory is marked by its turn alone."""
    patch.setattr("bubbot.features.memory.zone.PROVENANCE", "unread")


def _without_reads(patch: pytest.MonkeyPatch) -> None:
    """What tools read from before the window does not count."""
    patch.setattr("bubbot.tape.fork.note_reads", lambda _answers: None)


def _without_copies_of_anchors(patch: pytest.MonkeyPatch) -> None:
    """The state of a window that is taken up again is marked by its turn alone."""
    patch.setattr("bubbot.tape.handle.most_foreign", lambda source, _copied: source)


def _without_people(patch: pytest.MonkeyPatch) -> None:
    """Messages count as the owner's, whoever wrote them."""
    patch.setattr(messages.Authors, "judge", lambda *_: Source.OWN)


@pytest.mark.proof
@pytest.mark.law("T22")
@pytest.mark.parametrize(
    "remove",
    [
        _without_steps,
        _without_people,
        pytest.param(_without_copies_of_memory, marks=pytest.mark.proof),
        pytest.param(_without_reads, marks=pytest.mark.proof),
        pytest.param(_without_copies_of_anchors, marks=pytest.mark.proof),
    ],
)
def test_without_one_inheritance_words_are_lost(
    monkeypatch: pytest.MonkeyPatch, remove: Callable[[pytest.MonkeyPatch], None]
) -> None:
    remove(monkeypatch)
    assert asyncio.run(leaks(20261124, 80)) or asyncio.run(leaks(20261124, 300))
