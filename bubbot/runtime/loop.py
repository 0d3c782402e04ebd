"""The agent loop: runs the commands of a turn, then the model if one is needed, and returns how it ended."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from bubbot.errors import TurnTimeout
from bubbot.ports.model import Model, ModelReply, ToolSpec
from bubbot.ports.turn import Turn, TurnOutcome
from bubbot.runtime.router import InputRouter
from bubbot.runtime.runner import ModelRunner
from bubbot.tape import entry as make
from bubbot.tape.entry import JsonObject


class AgentLoop:
    """Answers a turn on its fork: the `InputRouter` takes the commands, the `ModelRunner` what is left.

    It is the `TurnRunner` of its turns, too.
    """

    def __init__(self, router: InputRouter, runner: ModelRunner) -> None:
        self._router = router
        self._runner = runner

    async def run(self, turn: Turn) -> TurnOutcome:
        """Answer the turn's inbounds. Raise whatever ended it early; the session records that."""
        if not turn.time_limit_seconds:
            return await self._run(turn)
        try:
            async with asyncio.timeout(turn.time_limit_seconds) as limit:
                return await self._run(turn)
        except TimeoutError:
            if not limit.expired():
                raise
            raise TurnTimeout(turn.time_limit_seconds) from None

    async def run_model(self, turn: Turn) -> TurnOutcome:
        """See `TurnRunner.run_model`."""
        answer = await self._runner.run(turn)
        return TurnOutcome("silent" if answer.silent else "answered", answer.text)

    async def ask(
        self,
        turn: Turn,
        system: str,
        messages: Sequence[JsonObject],
        *,
        purpose: str,
        shown: Sequence[int] = (),
        tools: Sequence[ToolSpec] = (),
    ) -> ModelReply:
        """See `TurnRunner.ask`."""
        return await self._runner.ask(turn, system, messages, purpose=purpose, shown=shown, tools=tools)

    async def find_model(self, turn: Turn) -> Model:
        """See `TurnRunner.find_model`."""
        return await self._runner.find_model(turn)

    async def _run(self, turn: Turn) -> TurnOutcome:
        if turn.fixed_reply is not None:
            await turn.tape.append([make.message("assistant", turn.fixed_reply, origin=turn.origin)])
            return TurnOutcome("answered", turn.fixed_reply)
        routed = await self._router.route(turn)
        if routed.failure is not None:
            return TurnOutcome("failed", routed.failure)
        texts = routed.replies
        if routed.ask_model:
            answer = await self._runner.run(turn)
            if answer.silent and not texts:
                return TurnOutcome("silent", "")
            texts += [answer.text] if answer.text else []
        return TurnOutcome("answered", "\n\n".join(texts))
