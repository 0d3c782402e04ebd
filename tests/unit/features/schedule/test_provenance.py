"""Jobs are as foreign as the words that they were made of, and so is what they cause."""

from __future__ import annotations

import pytest

from bubbot.stores.inmemory import InMemoryStore
from bubbot.tape.entry import Kind
from bubbot.tape.provenance import Source, source_of
from tests.provenance import MEMBER, page_tool, provenance_options
from tests.schedules import Timed, timed
from tests.turns import Played, calls, says
from tests.virtual import virtual


async def caused(bot: Timed) -> list[Source]:
    """Whose words the messages are that jobs have caused."""
    found = [entry for entry in await bot.bench.entries() if entry.kind == Kind.MESSAGE]
    return [source_of(entry) for entry in found if entry.meta.get("origin") == "schedule"]


@virtual
@pytest.mark.law("T22")
async def test_a_job_that_a_tainted_turn_made_fires_as_foreign_also_after_a_restart_and_an_edit() -> None:
    store = InMemoryStore()
    add = calls("schedule_add", when="in 10m", text="from the page")
    model = Played(calls("web_get"), add, says("added"), says("ok"))
    async with timed(store, model, provenance_options(page_tool())) as bot:
        await bot.say("go")
        (job,) = bot.book.state.jobs
        assert bot.book.state.jobs[job].provenance is Source.WORLD
        await bot.say(",new")
        await bot.say(f",schedule.edit {job} in 20m")
        assert bot.book.state.jobs[job].provenance is Source.WORLD
        await bot.book.write_checkpoint()
    async with timed(store, Played(says("ok")), provenance_options(), life="second") as bot:
        assert bot.book.state.jobs[job].provenance is Source.WORLD
        await bot.passes(minutes=30)
        assert await caused(bot) == [Source.WORLD, Source.WORLD]
        await bot.bench.quiet()
        assert bot.bench.channel.sent[-1].has_no_link_previews


@virtual
async def test_a_job_is_of_the_person_who_made_it() -> None:
    async with timed(InMemoryStore(), Played(says("ok")), provenance_options()) as bot:
        await bot.say(",remind in 5m: mine")
        await bot.say(",remind in 6m: theirs", sender=MEMBER)
        await bot.passes(minutes=10)
        assert await caused(bot) == [Source.OWN, Source.OWN, Source.PEOPLE, Source.PEOPLE]
