"""Nobody without a standing grant is admitted, whatever sequence of messages, codes, grants and revocations came."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bubbot.errors import CommandRefused, ConfigError
from bubbot.features.access.service import AccessService
from bubbot.gateway.admission import AdmissionPolicy, AdmissionSettings, OfferPairing, RecordOnly, Respond
from bubbot.ports.channel import Inbound, Role, Sender
from bubbot.stores.inmemory import InMemoryStore
from bubbot.tape.service import TapeService
from tests.callers import by as caller
from tests.callers import run
from tests.doubles import CountingIds, CountingSalt, SteppingClock

CHANNELS = ("one", "two")
OWNER, LISTED_BOT, GROUP, OTHER = "1", "9", "-100", "-200"
IDS = (OWNER, "2", "3", "4", LISTED_BOT, "８", "٢", "02", "@ann", "")
ROLES = (Role.MEMBER, Role.ADMIN, Role.OWNER)
SETTINGS = AdmissionSettings(
    owners=frozenset({OWNER}),
    groups=frozenset({GROUP}),
    record_only=frozenset({GROUP, OTHER}),
    respond_to_all=frozenset({OTHER}),
    trigger_names=("bubbot",),
    bots=frozenset({LISTED_BOT}),
)
channels, people, roles, givers = map(
    st.sampled_from, (CHANNELS, IDS, ROLES, ("terminal", "one:1", "one:2", "two:3", "one:4"))
)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("pair"), channels, people, st.booleans()),
        st.tuples(st.just("approve"), st.integers(0, 5), roles, givers),
        st.tuples(st.just("guess"), st.text("23456789ABCDEFGHJKLMNPQRSTUVWXYZ", min_size=8, max_size=8), roles, givers),
        st.tuples(st.just("grant"), channels, people, roles, givers),
        st.tuples(st.just("revoke"), channels, people, givers),
        st.tuples(st.just("wait"), st.integers(1, 5000)),
        st.tuples(st.just("restart")),
    ),
    max_size=30,
)


@dataclass
class World:
    """The bot, and what its operator would say of who may speak."""

    store: InMemoryStore = field(default_factory=InMemoryStore)
    clock: SteppingClock = field(default_factory=SteppingClock)
    salt: CountingSalt = field(default_factory=CountingSalt)
    standing: dict[tuple[str, str], Role] = field(default_factory=dict)
    codes: list[tuple[str, str, str]] = field(default_factory=list)

    async def start(self) -> None:
        """A process begins."""
        tape = TapeService(self.store, "bubbot/access", now=self.clock, new_id=CountingIds())
        listed = dict.fromkeys(CHANNELS, SETTINGS.listed_people)
        self.access = AccessService(tape, now=self.clock, random=self.salt, configured=listed)
        await self.access.load()

    def holds(self, channel: str, who: str) -> Role:
        """What the person may do by the operator's own list."""
        return Role.OWNER if who == OWNER else self.standing.get((channel, who), Role.STRANGER)

    def may_give(self, by: str, *about: Role) -> bool:
        """Whether the giver has what the roles ask for."""
        own = Role.OWNER if by == "terminal" else self.holds(*by.split(":"))
        return all(own.at_least(role) for role in (Role.ADMIN, *about))

    async def do(self, step: Sequence[object]) -> None:
        """One step, in the bot and on the list."""
        with contextlib.suppress(*((CommandRefused, ConfigError) if _may_fail(self, step) else ())):
            await getattr(self, f"_{step[0]}")(*step[1:])

    async def _pair(self, channel: str, who: str, bot: bool) -> None:
        code = await self.access.create_code(Sender(who, bot=bot), channel, who)
        if code is not None:
            assert not bot
            assert self.holds(channel, who) is Role.STRANGER
            self.codes.append((code, channel, who))

    async def _approve(self, number: int, role: Role, by: str) -> None:
        if not self.codes:
            return
        code, channel, who = self.codes[number % len(self.codes)]
        given = await run(self.access.approve, caller(by), code, role)
        assert (given.channel, given.id) == (channel, who)
        assert self.may_give(by, role)
        self.codes.remove((code, channel, who))
        self.standing[channel, who] = max(role, self.standing.get((channel, who), role), key=list(Role).index)

    async def _guess(self, code: str, role: Role, by: str) -> None:
        if code not in {one[0] for one in self.codes}:
            with pytest.raises(CommandRefused):
                await run(self.access.approve, caller(by), code, role)

    async def _grant(self, channel: str, who: str, role: Role, by: str) -> None:
        await run(self.access.grant, caller(by), who, channel, role)
        assert self.may_give(by, role, self.holds(channel, who))
        self.standing[channel, who] = role

    async def _revoke(self, channel: str, who: str, by: str) -> None:
        await run(self.access.revoke, caller(by), who, channel)
        assert self.may_give(by, self.holds(channel, who))
        del self.standing[channel, who]
        self.codes = [code for code in self.codes if code[1:] != (channel, who)]

    async def _wait(self, seconds: int) -> None:
        self.clock.advance(timedelta(seconds=seconds))

    async def _restart(self) -> None:
        await self.start()

    def check(self) -> None:
        """Every message that anybody can send is decided as the list says."""
        for channel in CHANNELS:
            asked = AdmissionPolicy(SETTINGS, self.access.role, lambda: 0.0)
            for who in IDS:
                expected = self.holds(channel, who)
                assert self.access.role(channel, who) is expected
                for inbound in self._messages(channel, who):
                    decision = asked.decide(inbound)
                    admitted = decision.role if isinstance(decision, (Respond, RecordOnly)) else Role.STRANGER
                    assert admitted is self._admitted(inbound, expected), (inbound, decision)
                    if isinstance(decision, OfferPairing):
                        assert inbound.direct

    def _messages(self, channel: str, who: str) -> list[Inbound]:
        base = Inbound(channel, "e", who, Sender(who, "1"), "bubbot?", "2026-11-21T20:21:00+00:00")
        other = Inbound(channel, "e", OTHER, Sender(who), "x", base.time, direct=False, addressed=False)
        group = Inbound(channel, "e", GROUP, Sender(who), "x", base.time, direct=False, addressed=False)
        bot = Inbound(channel, "e", GROUP, Sender(who, bot=True), "x", base.time, direct=False, addressed=True)
        return [base, other, group, bot]

    @staticmethod
    def _admitted(inbound: Inbound, own: Role) -> Role:
        if not inbound.sender.id.isascii() or inbound.sender.id in ("02", "@ann", ""):
            return Role.STRANGER
        if inbound.sender.bot:
            return Role.MEMBER if inbound.sender.id == LISTED_BOT else Role.STRANGER
        return Role.MEMBER if inbound.chat == GROUP and own is Role.STRANGER else own


def _may_fail(world: World, step: Sequence[object]) -> bool:
    """Whether a grant may be refused: without this, a bot that refuses everything would pass."""
    return step[0] != "grant" or step[2] not in ("2", "3", "4") or not world.may_give(str(step[4]), Role.OWNER)


async def _through(sequence: Sequence[Sequence[object]]) -> None:
    world = World()
    await world.start()
    for step in sequence:
        await world.do(step)
        world.check()


@given(steps)
def test_nobody_without_a_standing_grant_is_admitted(sequence: Sequence[Sequence[object]]) -> None:
    asyncio.run(_through(sequence))


@pytest.mark.proof
@settings(max_examples=3000)
@given(steps)
def test_nobody_without_a_standing_grant_is_admitted_at_length(sequence: Sequence[Sequence[object]]) -> None:
    asyncio.run(_through(sequence))
