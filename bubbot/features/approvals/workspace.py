"""What ends the standing grants of programs: words of others that were written where they run."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bubbot.features.approvals.gate import is_job
from bubbot.features.approvals.service import ApprovalService
from bubbot.middleware import CallNext, ToolInvocation
from bubbot.ports.channel import Role
from bubbot.ports.turn import Turn
from bubbot.tool import EffectKind, Tool, ToolOutput


class WorkspaceGuard:
    """The middleware behind the gate: it sees what runs.

    A program that an owner allowed for longer than once runs whatever it finds in its workspace. Before a call changes
    that for somebody who may not run programs (a page, a file, a member), what was allowed there ends. A program that runs
    under such a grant ends none: its owner trusts it with the workspace as it is.
    """

    def __init__(self, service: ApprovalService, list_tools: Callable[[], Sequence[Tool]]) -> None:
        """Set what it looks at.

        Args:
            service: open cards and grants.
            list_tools: returns all tools.
        """
        self._service = service
        self._list_tools = list_tools

    async def around_tool(self, call: ToolInvocation, call_next: CallNext[ToolInvocation, ToolOutput]) -> ToolOutput:
        """End the grants of a workspace before it changes, and go on."""
        effect = call.plan.effect if call.plan is not None else call.tool.effect
        if effect.in_workspace and _is_foreign(call.turn) and not await self._is_granted(call):
            programs = {
                tool.name
                for tool in self._list_tools()
                if tool.effect.in_workspace and tool.effect.kind is EffectKind.OUTSIDE
            }
            await self._service.end_workspace_grants(call.turn, programs, call.tool.name)
        return await call_next(call)

    async def _is_granted(self, call: ToolInvocation) -> bool:
        if call.plan is None or call.plan.effect.kind is not EffectKind.OUTSIDE or is_job(call.turn):
            return False
        grant = await self._service.match_grant(call.turn, call.tool.name, call.plan.target)
        return grant is not None and grant.is_exact


def _is_foreign(turn: Turn) -> bool:
    """Return true if a turn runs for somebody who is no owner, or its model was shown words of one."""
    shown = turn.shown
    return turn.role is not Role.OWNER or bool(shown.world) or any(role is not Role.OWNER for _, role in shown.people)
