"""Let people act in a new home, and look at everything that others than they get to see."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random

from tests.isolation.acts import Acts
from tests.isolation.world import IMPORTED, World

TURNS_OF_A_LIFE = 250


def run(home: Path, seed: int, turns: int, *, everywhere: bool = False, stop_at_leak: bool = False) -> Acts:
    """Run so many turns over some lives of the bot, the last of which calls every tool; look through tapes and exports.

    Args:
        home: a new folder.
        seed: draws what people do.
        turns: messages that people write, besides one for each tool and for what chance never drew.
        everywhere: call every tool in every chat.
        stop_at_leak: end the run once somebody saw too much.
    """
    acts = Acts(World(home), Random(seed))
    world, lives = acts.world, max(turns // TURNS_OF_A_LIFE, 1)

    async def live(*, is_last: bool) -> None:
        async with world.life():
            await acts.run(turns // lives, stop_at_leak=stop_at_leak)
            if is_last and not (stop_at_leak and world.leaks):
                await acts.do_the_rest()
                await acts.call_every_tool(everywhere=everywhere)
            await world.audit()

    world.import_tape(IMPORTED)
    for life in range(lives):
        asyncio.run(live(is_last=life == lives - 1))
        world.export_system()
        if stop_at_leak and world.leaks:
            return acts
    world.export()
    return acts
