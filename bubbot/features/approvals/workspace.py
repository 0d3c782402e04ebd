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

    A program with a standing grant runs whatever it finds in its workspace. So the grants there end before a call changes
    the workspace in a turn that works for anybody but an owner, or whose model was shown words of others. A call that runs
    under an exact grant ends none: the owner trusts that program with the workspace.
    """

    def __init__(self, service: ApprovalService, list_tools: Callable[[], Sequence[Tool]]) -> None:
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
