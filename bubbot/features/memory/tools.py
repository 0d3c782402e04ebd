"""The commands of memory as tools, with what only a call of a model needs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Any

from bubbot.command import Caller, explain_refusals, make_tools
from bubbot.features.memory.arguments import ClearArgs, ForgetArgs, RestoreArgs, SaveArgs, ScopedArgs
from bubbot.features.memory.changes import find_lost_lines, forget_lines, list_lines
from bubbot.features.memory.commands import MemoryCommands
from bubbot.features.memory.memories import Memories
from bubbot.features.memory.opening import MemoryOpener
from bubbot.features.memory.results import bullet_list
from bubbot.features.memory.views import MemorySnapshot
from bubbot.ports.arguments import write_given
from bubbot.ports.tool import CLEARS_MEMORY, INSIDE, READS_PEOPLE, CallPlan, Tool
from bubbot.ports.turn import Turn
from bubbot.tape.query import fold_text


def memory_tools(memories: Memories) -> list[Tool]:
    """Build the tools for the memories that a turn has access to."""
    opener, commands = MemoryOpener(memories), MemoryCommands(memories)

    async def plan_loss(turn: Turn, args: ScopedArgs, find_lost: Callable[[MemorySnapshot], Sequence[str]]) -> CallPlan:
        """Say which lines a call would take away; one that takes none only adds."""
        with explain_refusals(turn, ",memory"):
            async with opener.open_to_write(Caller.of_turn(turn), args, only_asks=True) as opened:
                lost = find_lost(await opened.zone.read())
        details = write_given(args, indent=2)
        if not lost:
            return CallPlan(INSIDE, details)
        lines = bullet_list(lost)
        state = sha256(lines.encode()).hexdigest()
        return CallPlan(CLEARS_MEMORY, f"{details}\n{turn.texts.say('memory_goes')}\n{lines}", state=state)

    async def plan_save(turn: Turn, args: SaveArgs) -> CallPlan:
        return await plan_loss(turn, args, lambda before: find_lost_lines(before.long_term, args.content))

    async def plan_forget(turn: Turn, args: ForgetArgs) -> CallPlan:
        needle = fold_text(args.text).strip()
        return await plan_loss(turn, args, lambda before: forget_lines(before, needle, "")[1] if needle else ())

    async def plan_restore(turn: Turn, args: RestoreArgs) -> CallPlan:
        return await plan_loss(turn, args, list_lines)  # any of them may be missing in the older version

    options: dict[str, dict[str, Any]] = {
        "memory_save": {"plan": plan_save},
        "memory_show": {"is_rare": True},
        "memory_forget": {"plan": plan_forget},
        "memory_restore": {"plan": plan_restore, "is_rare": True},
        "memory_clear": {"plan": _plan_clear, "is_rare": True},
    }
    return make_tools(MemoryCommands, lambda: commands, **options)


async def _plan_clear(_turn: Turn, args: ClearArgs) -> CallPlan:
    """Say whether a call clears anything: without `confirm` it only tells what would go."""
    details = write_given(args, indent=2)
    return CallPlan(CLEARS_MEMORY if args.confirm else READS_PEOPLE, details)
