"""A process with one platform and everybody who talks there: python -m benchmarks.soak.people PLATFORM CHATS [HOW].

HOW is `joined` if one answer may be to several messages, `failing` if a sentence may say that there is none.

It says `{"table": ...}` for `config.toml` at once. Asked `{"messages": 10, "ahead": 4, "spread": 0}` it lets every chat
say so many messages more, at most `ahead` of them unanswered, the chats beginning within `spread` seconds, and tells `{"answered": 17}` meanwhile and the figures in the end;
with `"chats": [0, 3]` only these say something. Asked `{"faults": true}` it looks at every chat.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.soak import words
from benchmarks.soak.platforms import PLATFORMS, Platform
from benchmarks.soak.talk import Message, asked, tell

TOLD_EVERY = 0.25
"""Seconds between two words of progress."""


class People:
    """Says messages and counts answers."""

    def __init__(self, name: str, platform: Platform, chats: int, how: str) -> None:
        self._name = name
        self._platform = platform
        self._joined = how == "joined"
        self._failing = how == "failing"
        self._said = [0] * chats
        self._open: list[dict[int, float]] = [{} for _ in range(chats)]
        self._told = 0.0
        self.answered = 0

    async def talk(self, messages: int, ahead: int, spread: float, chats: Sequence[int]) -> Message:
        """Let these chats say so many messages more; return when each has been answered."""
        goal = [said + messages * (chat in chats) for chat, said in enumerate(self._said)]
        waits, ends, begun = list[float](), list[float](), time.monotonic()
        starting = asyncio.create_task(self._start(goal, ahead, spread, chats))
        while not starting.done() or any(self._open):
            await self._platform.changed(TOLD_EVERY)
            for chat, text in self._platform.news():
                found = self._heard(chat, text)
                waits += found
                ends += [time.monotonic()] * len(found)
                while len(self._open[chat]) < ahead and self._said[chat] < goal[chat]:
                    self._say(chat, goal[chat])
            self._tell()
        await starting
        tell({"answered": self.answered})
        return {"begun": begun, "ends": ends, "waits": [round(wait, 4) for wait in waits]}

    async def _start(self, goal: list[int], ahead: int, spread: float, chats: Sequence[int]) -> None:
        """The first messages: all chats say their first, then all their second; or one chat after another."""
        if spread:
            for chat in chats:
                for _ in range(ahead):
                    self._say(chat, goal[chat])
                await asyncio.sleep(spread / len(chats))
            return
        for _ in range(ahead):
            for chat in chats:
                self._say(chat, goal[chat])

    def faults(self) -> list[str]:
        """What is wrong in any chat."""
        look = words.faults_of_joined if self._joined else words.faults
        if self._failing:
            look = words.faults_of_failing
        return [
            fault
            for chat, said in enumerate(self._said)
            for fault in look(self._name, chat, said, self._platform.heard(chat))
        ]

    def _say(self, chat: int, goal: int) -> None:
        number = self._said[chat]
        if number < goal:
            self._said[chat] = number + 1
            self._open[chat][number] = time.monotonic()
            self._platform.say(chat, words.message(chat, number))

    def _heard(self, chat: int, text: str) -> list[float]:
        """The seconds that each message waited which this text answers."""
        waited = []
        if self._failing and words.is_failure(text) and self._open[chat]:
            waited.append(time.monotonic() - self._open[chat].pop(min(self._open[chat])))
        for other, number in words.named(text):
            if other == chat and number in self._open[chat] and (self._joined or text == words.answer(chat, number)):
                waited.append(time.monotonic() - self._open[chat].pop(number))
        self.answered += len(waited)
        return waited

    def _tell(self) -> None:
        if time.monotonic() - self._told >= TOLD_EVERY:
            self._told = time.monotonic()
            tell({"answered": self.answered})


async def main(name: str, chats: int, how: str) -> None:
    """Serves until standard input closes."""
    async with PLATFORMS[name](limits=None) as server:
        platform = Platform(server, chats)
        people = People(name, platform, chats, how)
        tell({"table": dict(platform.table())})
        async for question in asked():
            tell({"reply": await _reply(people, question, chats)})


async def _reply(people: People, question: Mapping[str, Any], chats: int) -> Message | list[str]:
    if "faults" in question:
        return people.faults()
    talking = question.get("chats", range(chats))
    return await people.talk(int(question["messages"]), int(question["ahead"]), question.get("spread", 0.0), talking)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), "".join(sys.argv[3:4])))
