"""A home in which two people talk on Telegram and on Discord, apart and together; every text of each has a mark of theirs."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from zoneinfo import ZoneInfo

from msgspec import structs

from bubbot.app.events import OWN_REFERENCES
from bubbot.app.people import personal_tapes
from bubbot.features.access.facts import AccountsLinked, LinkCode
from bubbot.features.access.links import AccountLinks
from bubbot.features.people.consent import ConsentService
from bubbot.features.people.export import ExportCommands
from bubbot.features.people.feature import PeopleFeature
from bubbot.log import Redactor
from bubbot.models.scripted import ScriptedModel
from bubbot.ports.channel import Attachment, Edit, Quote, Reaction, Role, Sender
from bubbot.ports.turn import TurnResult
from bubbot.tape.fact import Fact
from bubbot.tape.projection import ProjectionRunner
from bubbot.tape.service import TapeService
from bubbot.tape.store import TapeStore
from tests.doubles import CountingIds, SteppingClock
from tests.kernels import make_kernel
from tests.turns import Bench, KeptChannel, Options, running

ANN, BOB = "1", "2"
ANN_NAME, BOB_NAME = "</script><script>alert('ANN.name')</script>\u202e", "BOB.name"
DISCORD_ANN, DISCORD_BOB = "11", "22"
SECRET = "s3cret-token-of-the-bot"
GROUP = "-100"
AT = "2026-11-21T20:21:00+00:00"
NAMES = {ANN: ANN_NAME, BOB: BOB_NAME, DISCORD_ANN: "ANN.discord", DISCORD_BOB: "BOB.discord"}


def marks(text: str, person: str) -> set[str]:
    """The marks of a person in a text."""
    return set(re.findall(rf"{person}\.[a-z0-9]+", text))


async def tell_nobody(*_: Any) -> bool:
    """Notify no owner: none has a direct chat."""
    return False


async def find_no_owner(*_: Any) -> tuple[str, ...]:
    """Name no owner: none has written."""
    return ()


class PeopleHome:
    """The home over a store; each channel is run by a bench of its own, one after the other."""

    def __init__(self, store: TapeStore) -> None:
        self.store = store
        self.clock = SteppingClock()
        self.links = AccountLinks(self.tape("bubbot/access"), ProjectionRunner())
        self.consents = ConsentService(self.tape("bubbot/access"), ProjectionRunner(), self.find_accounts)
        self.exports = ExportCommands(
            store,
            personal_tapes({}, OWN_REFERENCES),
            self.find_accounts,
            now=self.clock,
            zone=ZoneInfo("UTC"),
            redact=Redactor((SECRET,)),
        )
        self._lives = 0

    def tape(self, name: str) -> TapeService:
        return TapeService(self.store, name, now=self.clock, new_id=CountingIds(), references=OWN_REFERENCES)

    async def find_accounts(self, account: tuple[str, str]) -> tuple[tuple[str, str], ...]:
        """The linked accounts as the tape has them now."""
        return await AccountLinks(self.tape("bubbot/access"), ProjectionRunner()).linked_accounts(account)

    async def write(self, tape: str, *facts: Fact) -> None:
        await self.tape(tape).append([fact.to_entry() for fact in facts])

    async def link(self, first: tuple[str, str], second: tuple[str, str]) -> None:
        code = LinkCode(*first, ":".join(first), "00", "00", "2026-11-22T00:00:00+00:00")
        (entry,) = await self.tape("bubbot/access").append([code.to_entry()])
        await self.write("bubbot/access", AccountsLinked(entry.id, *first, *second))

    @asynccontextmanager
    async def on(self, channel: str, role: Role = Role.MEMBER) -> AsyncIterator[Bench]:
        """The bot on a channel for the block."""
        self._lives += 1
        kernel = make_kernel(open_tape=self.tape)
        feature = PeopleFeature(
            kernel,
            self.consents,
            None,
            build_exports=lambda _: self.exports,
            notify_owner=tell_nobody,
            find_accounts=self.find_accounts,
            find_owners=find_no_owner,
        ).feature()
        options = Options(role=role, clock=self.clock, features=[feature], accounts=self.links)
        made = running(self.store, ScriptedModel(), options, channel=KeptChannel(channel), life=f"life{self._lives}")
        async with made as bench:
            yield bench


async def post(bench: Bench, who: Sender, text: str, *, chat: str = "", **fields: Any) -> asyncio.Future[TurnResult]:
    """Hand in what a person says, alone with the bot or in a chat with others."""
    together = {"chat": chat, "direct": False} if chat else {"chat": who.id}
    inbound = bench.inbound(text, **{**together, **fields})
    posted = await bench.gate.accept(structs.replace(inbound, sender=who))
    assert posted is not None
    return posted


async def say(bench: Bench, person: str, text: str, *, chat: str = "", **fields: Any) -> str:
    """Say something, as `post`, and return the answer once everything is delivered."""
    result = await (await post(bench, Sender(person, NAMES[person]), text, chat=chat, **fields))
    await bench.quiet()
    return result.text


async def live(home: PeopleHome) -> None:
    """Let both people use everything."""
    async with home.on("telegram", Role.ADMIN) as bench:
        bench.channel.files["ref"] = b"\x89PNG\r\n\x1a\nANN.bytes"
        bench.channel.files["other"] = b"BOB.bytes"
        photo, paper = Attachment("ref", "ANN.photo", "image/png"), Attachment("other", "BOB.paper", "text/plain")
        for person, who in ((ANN, "ANN"), (BOB, "BOB")):
            await say(bench, person, f"{who}.direct")
            await say(bench, person, f",remember scope=user text={who}.user")
            await say(bench, person, f",remember {who}.chat")
            await say(bench, person, f",topic {who}.topic")
            await say(bench, person, f"{who}.group", chat=GROUP, external_id=f"{who}-group", message=f"{who}-group")
            await say(bench, person, f",remember {who}.shared", chat=GROUP)
            await say(bench, person, f",topic {who}.together", chat=GROUP)
        await say(bench, ANN, f"ANN.secret {SECRET}")
        await say(bench, ANN, "ANN.file", attachments=(photo,))
        await say(bench, BOB, "BOB.file", attachments=(paper,))
        by_ann, by_bob = Sender(ANN, NAMES[ANN]), Sender(BOB, NAMES[BOB])
        await say(bench, BOB, "BOB.quotes", chat=GROUP, quote=Quote("ANN-group", by_ann, "ANN.quoted"))
        bob_quoted = Quote("BOB-group", by_bob, "BOB.quoted", (paper,))
        await say(bench, ANN, "ANN.quotes", chat=GROUP, quote=bob_quoted)
        for who, sender in (("ANN", by_ann), ("BOB", by_bob)):
            message = f"{who}-group"
            await bench.gate.receive(Edit("telegram", f"{who}-edit", GROUP, message, sender, f"{who}.edited", AT))
            emojis = (f"{who}.emoji",)
            await bench.gate.receive(Reaction("telegram", f"{who}-react", GROUP, message, sender, emojis, AT))
        await bench.quiet()
        both = [
            await post(bench, sender, f"{who}.both", chat=GROUP) for who, sender in (("ANN", by_ann), ("BOB", by_bob))
        ]
        for each in both:
            await each
        await bench.quiet()
    async with home.on("discord") as bench:
        await say(bench, DISCORD_ANN, "ANN.discorddirect")
        await say(bench, DISCORD_BOB, "BOB.discorddirect")
        await say(bench, DISCORD_ANN, "ANN.server", chat="900", space="5")
        await say(bench, DISCORD_BOB, "BOB.server", chat="900", space="5")
        same_number = Sender(ANN, "BOB.samenumber")  # the number of another person on the other platform
        await (await post(bench, same_number, "BOB.sameid", chat="900"))
        await bench.quiet()
