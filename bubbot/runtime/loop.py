"""The agent loop: runs the commands of a turn, then the model if one is needed, and returns how it ended."""

from __future__ import annotations

import asyncio

from bubbot.errors import TurnTimeout
from bubbot.ports.channel import Inbound
from bubbot.ports.turn import Turn, TurnOutcome
from bubbot.runtime.router import InputRouter
from bubbot.runtime.runner import ModelRunner
from bubbot.tape import entry as make


class AgentLoop:
    """Answers a turn on its fork: the `InputRouter` runs the commands, the `ModelRunner` answers the rest.

    Attributes:
        runner: the runner of models for its turns.
    """

    def __init__(self, router: InputRouter, runner: ModelRunner) -> None:
        self._router = router
        self.runner = runner

    def stops_tasks(self, inbound: Inbound) -> bool:
        """See `InputRouter.stops_tasks`."""
        return self._router.stops_tasks(inbound)

    def is_for_people(self, text: str) -> bool:
        """See `InputRouter.is_for_people`."""
        return self._router.is_for_people(text)

    async def run(self, turn: Turn) -> TurnOutcome:
        """Answer the turn's inbounds. Raise the error that ended it early; the session records it."""
        if not turn.time_limit_seconds:
            return await self._run(turn)
        try:
            async with asyncio.timeout(turn.time_limit_seconds) as limit:
                return await self._run(turn)
        except TimeoutError:
            if not limit.expired():
                raise
            raise TurnTimeout(turn.time_limit_seconds) from None

    async def _run(self, turn: Turn) -> TurnOutcome:
        if turn.fixed_reply is not None:
            await turn.tape.append([make.message("assistant", turn.fixed_reply, origin=turn.origin)])
            return TurnOutcome("answered", turn.fixed_reply)
        routed = await self._router.route(turn)
        if routed.failure is not None:
            return TurnOutcome("failed", routed.failure)
        texts = routed.replies
        if routed.ask_model:
            answer = await self.runner.run_model(turn)
            if answer.status == "silent" and not texts:
                return answer
            texts += [answer.text] if answer.text else []
        return TurnOutcome("answered", "\n\n".join(texts))
