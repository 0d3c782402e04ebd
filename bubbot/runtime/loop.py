"""The agent loop: runs the commands of a turn, then the model if one is needed, and returns how it ended."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from bubbot.errors import TurnTimeout
from bubbot.ports.turn import SCHEDULE_ORIGIN, Status, Turn
from bubbot.runtime.commands import CommandOutcome, CommandRunner
from bubbot.runtime.router import is_command
from bubbot.runtime.runner import ModelRunner
from bubbot.tape import entry as make


@dataclass(frozen=True, slots=True)
class LoopResult:
    """The result of the loop, and the text that people get."""

    status: Status
    text: str


class AgentLoop:
    """Runs a turn on its fork: its commands, and the `ModelRunner` if the router leaves a message for the model."""

    def __init__(
        self, commands: CommandRunner, runner: ModelRunner, *, has_model: Callable[[Turn], Awaitable[bool]]
    ) -> None:
        """Set the runners; `has_model` returns whether a model can explain a failed command."""
        self._commands = commands
        self._runner = runner
        self._has_model = has_model

    async def run(self, turn: Turn) -> LoopResult:
        """Answer the turn's inbounds. Raise whatever ended it early; the turn boundary records that."""
        try:
            async with asyncio.timeout(turn.time_limit_seconds or None) as limit:
                return await self._run(turn)
        except TimeoutError:
            if not limit.expired():
                raise
            raise TurnTimeout(turn.time_limit_seconds) from None

    async def _run(self, turn: Turn) -> LoopResult:
        if turn.fixed_reply is not None:
            await turn.tape.append([make.message("assistant", turn.fixed_reply, origin=SCHEDULE_ORIGIN)])
            return LoopResult("answered", turn.fixed_reply)
        texts: list[str] = []
        ask_model = bool(turn.message_ids)
        for accepted in turn.inbounds:
            if not is_command(accepted.inbound.text):
                continue
            outcome = await self._commands.run(turn, accepted.inbound.text)
            await turn.write_handoffs()
            if turn.origin == SCHEDULE_ORIGIN and outcome.status != "ok":  # nobody is present to correct it
                return LoopResult("failed", _reply_text(turn, outcome))
            if outcome.status == "error" and await self._has_model(turn):
                await self._fall_through(turn, outcome)
                ask_model = True
            else:
                texts += [_reply_text(turn, outcome)] if outcome.output else []
                ask_model = ask_model or outcome.rerun
        if ask_model:
            answer = await self._runner.run(turn)
            if answer.silent and not texts:
                return LoopResult("silent", "")
            texts += [answer.text] if answer.text else []
        return LoopResult("answered", "\n\n".join(texts))

    async def _fall_through(self, turn: Turn, outcome: CommandOutcome) -> None:
        """Give a command that ran and raised to the model as a message, so that it can explain the error."""
        stored = await turn.tape.append([make.message("user", outcome.for_model(), origin="system")])
        turn.message_ids.append(stored[0].id)


def _reply_text(turn: Turn, outcome: CommandOutcome) -> str:
    return turn.texts.add_trace(outcome.output, turn.id) if outcome.status == "error" else outcome.output
