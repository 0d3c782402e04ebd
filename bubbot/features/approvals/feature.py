"""The feature: the gate before each call of a model, cards, answers, and the turns that go on after them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence

from bubbot.command import Surface, explain
from bubbot.errors import CommandRefused
from bubbot.feature import Apply, Around, Feature, Kernel, Lifecycle
from bubbot.features.approvals.commands import ApprovalCommands, approval_tools
from bubbot.features.approvals.decider import Decider
from bubbot.features.approvals.facts import Answer, Scope
from bubbot.features.approvals.gate import CallGate, FindJobGrants
from bubbot.features.approvals.service import ApprovalService
from bubbot.features.approvals.settings import ApprovalSettings
from bubbot.features.approvals.source import ApprovalTurns
from bubbot.features.approvals.state import APPROVALS_TAPE
from bubbot.features.approvals.workspace import WorkspaceGuard
from bubbot.ports.approvals import AskApproval
from bubbot.ports.channel import APPROVAL_ORIGIN, Inbound
from bubbot.settings.loader import Settings
from bubbot.tape.entry import TapeEntry
from bubbot.texts import COMMAND_PREFIX
from bubbot.tool import Tool


class ApprovalsFeature:
    """The approvals of a bot.

    Attributes:
        service: open cards and grants.
        ask: asks people a question of another feature.
    """

    def __init__(
        self,
        kernel: Kernel,
        settings: ApprovalSettings,
        list_tools: Callable[[], Sequence[Tool]],
        find_job_grants: FindJobGrants,
    ) -> None:
        """Build it without reading anything.

        Args:
            settings: who may allow, and where that is asked.
        """
        self.service = ApprovalService(
            kernel.open_tape, kernel.now, os.urandom, settings, projections=kernel.projections, kernel=kernel
        )
        self._gate = CallGate(self.service, kernel.stage, list_tools, find_job_grants)
        self._workspace = WorkspaceGuard(self.service, list_tools)
        self._turns = ApprovalTurns(kernel.role_of)
        self._role_of, self._texts = kernel.role_of, kernel.texts
        self.ask: AskApproval = self._gate.ask

    def feature(self) -> Feature:
        """Build the record."""
        return Feature(
            name="approvals",
            tools=approval_tools(ApprovalCommands(self.service)),
            services=(self.service,),
            sources={APPROVAL_ORIGIN: self._turns},
            traces=(APPROVALS_TAPE,),
            around=Around(turn=(self._gate.around_turn,), tool=(self._gate.around_tool, self._workspace.around_tool)),
            on_merged=(self.service.apply_merge,),
            lifecycle=Lifecycle(on_recovered=self._recover, prepare=self._prepare),
        )

    async def decide_press(self, inbound: Inbound, facts: Mapping[str, Sequence[TapeEntry]]) -> str | None:
        """Answer a card that was pressed, at once: no turn has to run for that, and none may undo it (T21).

        Args:
            inbound: the press, as the command of its button.
            facts: those of the press, which are stored with the decision.

        Returns:
            Why it does not count, empty if it does; None if the button is no answer to a card.
        """
        answer = read_press(inbound.text)
        if answer is None:
            return None
        number, verdict, scope = answer
        decider = Decider.of_press(inbound, self._role_of(inbound))
        try:
            await self.service.answer(number, verdict, decider, scope=scope, facts=facts)
        except CommandRefused as error:
            return explain(error, "", self._texts.in_language(inbound.sender.language), Surface.CHAT)
        return ""

    async def _recover(self) -> None:
        await self.service.load()
        await self.service.continue_decided()

    async def _prepare(self, settings: Settings) -> Apply:
        section = settings.section(ApprovalSettings)

        def apply() -> None:
            self.service.settings = section

        return apply


def read_press(text: str) -> tuple[str, Answer, Scope] | None:
    """Return the card, the answer and the scope that a button of a card stands for; None for another button."""
    match text.removeprefix(COMMAND_PREFIX).split():
        case ["approve", number, ("once" | "chat" | "always") as scope]:
            return number, "approved", scope
        case ["deny", number]:
            return number, "denied", "once"
    return None
