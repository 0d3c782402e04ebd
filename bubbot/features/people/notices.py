"""What owners hear of people who were forgotten: once for each, from the facts alone, without a word about who it was."""

from __future__ import annotations

import asyncio

from bubbot.features.people.facts import (
    ForgettingFinished,
    ForgettingReport,
    ForgettingReported,
    PersonForgetting,
    PersonForgotten,
)
from bubbot.gateway.requests import NotifyOwner
from bubbot.ports.forgetting import PEOPLE_TAPE
from bubbot.tape.entry import Kind
from bubbot.tape.query import TapeQuery
from bubbot.tape.service import TapeService
from bubbot.texts import Texts


class ForgettingNotices:
    """Notifies an owner of each person who was forgotten at this start or before, and of those who could not be."""

    def __init__(self, tape: TapeService, notify_owner: NotifyOwner) -> None:
        self._tape, self._notify_owner = tape, notify_owner
        self._wishes: dict[int, PersonForgetting] = {}
        self._due: dict[tuple[int, ForgettingReport], PersonForgotten | None] = {}
        """What is not reported yet, by the wish; None if it failed."""
        self._turn_merged = asyncio.Event()

    async def load(self) -> None:
        """Find what is not reported. Call it before the first turn: a wish that is open then has failed at this start."""
        entries = (await self._tape.fetch([TapeQuery(PEOPLE_TAPE, kinds=(Kind.EVENT,))]))[0]
        forgotten: dict[int, PersonForgotten] = {}
        open_wishes, reported = set[int](), set[tuple[int, ForgettingReport]]()
        for entry in entries:
            if entry.erased:
                continue
            if entry.name in PersonForgetting.EVENTS:
                self._wishes[entry.id] = PersonForgetting.of(entry)
                open_wishes.add(entry.id)
            elif entry.name in PersonForgotten.EVENTS:
                fact = PersonForgotten.of(entry)
                forgotten[fact.forgetting] = fact
            elif entry.name in ForgettingFinished.EVENTS:
                open_wishes.discard(ForgettingFinished.of(entry).forgetting)
            elif entry.name in ForgettingReported.EVENTS:
                report = ForgettingReported.of(entry)
                reported.add((report.forgetting, report.report))
        due: dict[tuple[int, ForgettingReport], PersonForgotten | None] = {
            (number, "failed"): None for number in open_wishes
        }
        due |= {(number, "forgotten"): fact for number, fact in forgotten.items() if number not in open_wishes}
        self._due = {key: fact for key, fact in due.items() if key not in reported}

    def retry(self) -> None:
        """Try again what no owner could be told: one may have written in a direct chat now."""
        self._turn_merged.set()

    async def run(self) -> None:
        """Notify an owner of each, until none is left; if no owner has a direct chat yet, wait for the next turn."""
        while self._due:
            self._turn_merged.clear()
            for number, report in list(self._due):
                if await self._notify(number, report):
                    del self._due[number, report]
            if self._due:
                await self._turn_merged.wait()

    async def _notify(self, number: int, report: ForgettingReport) -> bool:
        key = f"{report}:{number}"
        fact = ForgettingReported(number, report).to_entry(key=key)
        return await self._notify_owner(
            PEOPLE_TAPE, key, lambda texts: (self._describe(texts, number, report), None), fact
        )

    def _describe(self, texts: Texts, number: int, report: ForgettingReport) -> str:
        fact = self._due[number, report]
        if fact is None:
            return texts.say("forget_failed")
        wish = self._wishes.get(number)
        code = "forget_done" if wish is not None and wish.by == "person" else "forget_done_owner"
        sentences = [texts.say(code, count=fact.entries, tapes=fact.tapes, files=fact.files)]
        if fact.mentions:
            mentions = sum(last - first + 1 for spans in fact.mentions.values() for first, last in spans)
            sentences.append(texts.say("forget_done_mentions", count=mentions, chats=len(fact.mentions)))
        sentences.append(texts.say("forget_done_list", list=texts.format_commands(",access.forgotten")))
        return " ".join(sentences)
