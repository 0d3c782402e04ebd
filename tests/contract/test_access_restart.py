"""What was granted, revoked and given out is the same after a restart, in a real database."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

from bubbot.features.access.service import AccessService
from bubbot.ports.access import ListedPeople
from bubbot.ports.channel import Role, Sender
from bubbot.stores.sqlite.store import open_readonly, open_store
from bubbot.tape.service import TapeService
from tests.callers import by, refused, run
from tests.doubles import CountingIds, CountingSalt, SteppingClock


@asynccontextmanager
async def process(path: Path, clock: SteppingClock, *, write: bool = True) -> AsyncIterator[AccessService]:
    """What a process has from its start to its end."""
    store = await open_store(path, salt=CountingSalt(), now=clock) if write else await open_readonly(path)
    try:
        tape = TapeService(store, "bubbot/access", now=clock, new_id=CountingIds())
        access = AccessService(tape, now=clock, random=CountingSalt(), configured={"chat": ListedPeople()})
        await access.load()
        yield access
    finally:
        await store.aclose()


async def test_everything_is_as_it_was(tmp_path: Path, clock: SteppingClock) -> None:
    path = tmp_path / "bubbot.db"
    async with process(path, clock) as access:
        await run(access.grant, by("terminal"), "1", "chat", "owner")
        await run(access.grant, by("chat:1"), "2", "chat", "admin")
        await run(access.revoke, by("chat:1"), "2", "chat")
        used = await access.create_code(Sender("3", "Čárá"), "chat", "3")
        unused = await access.create_code(Sender("4"), "chat", "4")
        assert used
        assert unused
        await run(access.approve, by("terminal"), used, "member")
        before = access.state
    async with process(path, clock, write=False) as reader:
        assert reader.state == before
        assert [code.fact.id for code in reader.pending_codes()] == ["4"]
        assert [each.entry for each in await run(reader.list_history, by("terminal"), 3)] == [7, 6, 5]
    async with process(path, clock) as access:
        assert [access.role("chat", one) for one in "1234"] == [Role.OWNER, Role.STRANGER, Role.MEMBER, Role.STRANGER]
        assert await access.create_code(Sender("4"), "chat", "4") is None  # the limits hold as well
        with refused("used before"):
            await run(access.approve, by("terminal"), used, "member")
        await run(access.approve, by("terminal"), unused, "member")
        for _ in range(10):
            with refused(r"used before|wrong within"):
                await run(access.approve, by("terminal"), used, "member")
    async with process(path, clock) as access:
        with refused("wrong within an hour"):
            await run(access.approve, by("terminal"), unused, "member")
        clock.advance(timedelta(days=2))
        assert await access.create_code(Sender("5"), "chat", "5")
        assert [each.code.fact.id for each in access.state.codes] == ["5"]
        assert access.role("chat", "4") is Role.MEMBER


async def test_a_revocation_ends_a_code_from_before_it_after_a_restart_too(
    tmp_path: Path, clock: SteppingClock
) -> None:
    path = tmp_path / "bubbot.db"
    async with process(path, clock) as access:
        code = await access.create_code(Sender("3"), "chat", "3")
        assert code
        await run(access.grant, by("terminal"), "3", "chat", "member")
        await run(access.revoke, by("terminal"), "3", "chat")
    async with process(path, clock) as access:
        assert access.pending_codes() == ()
        with refused("expired"):
            await run(access.approve, by("terminal"), code, "member")
