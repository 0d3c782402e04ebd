"""Whose words a request of a running turn may have, while a chat goes on and begins again."""

from __future__ import annotations

from pathlib import Path

from bubbot.features.learn.live.consent import LiveConsent
from bubbot.models.scripted import ScriptedModel
from bubbot.ports.people import Account
from tests.family import GROUP, MEMBER, OWNER, Family, family
from tests.turns import says

ANN, BEN = ("tg", OWNER), ("tg", MEMBER)


async def find_people(bench: Family, consent: LiveConsent) -> set[Account]:
    """Return everybody who has spoken in the group, as a turn that begins now finds them."""
    fork = await bench.daemon.bot.tape(f"tg:{GROUP}").open_fork()
    try:
        return await (await consent._find_speakers(fork)).find_before(fork.base)
    finally:
        await fork.discard()


async def test_in_a_chat_that_began_again_and_grew_everybody_is_asked_who_spoke_since(tmp_path: Path) -> None:
    async with family(tmp_path, ScriptedModel({"default": [says("Well.")]}), agents={}) as bench:
        features = bench.daemon.bot.features
        consent = LiveConsent(features.consents, features._kernel.open_copy)
        for text in ("I am here", "and I stay"):
            await bench.say(text)
        assert await find_people(bench, consent) == {ANN}
        before = len(await bench.entries())
        await bench.say(",reset archive")
        await bench.say("I am here, too", MEMBER)
        while len(await bench.entries()) <= before:
            await bench.say("And I stay")
        assert await find_people(bench, consent) == {ANN, BEN}
