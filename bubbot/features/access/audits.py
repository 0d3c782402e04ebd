"""Auditors: people who may look at the tapes of granted sessions, and no more.

Looking is no role. Who may speak is decided as if there were no such grant: an auditor may be a member too, or a stranger.
"""

from __future__ import annotations

from bubbot.features.access.service import parse_auditor
from bubbot.features.access.state import ACCESS_PROJECTION
from bubbot.tape.boundary import Viewer
from bubbot.tape.handle import TapeHandle
from bubbot.tape.projection import ProjectionRunner


class AuditorDirectory:
    """The auditors, for what shows tapes. It only reads the tape of access, and follows every change."""

    def __init__(self, tape: TapeHandle, projections: ProjectionRunner | None = None) -> None:
        self._projected = (projections or ProjectionRunner()).project(ACCESS_PROJECTION, tape)

    async def find_viewer(self, auditor: str) -> Viewer:
        """Return an auditor with the sessions granted now: none if there are none. Raise `ValueInvalid` for another text."""
        account = parse_auditor(auditor)
        state = await self._projected.catch_up()
        name = ":".join(filter(None, account))
        return Viewer(name, state.audited_sessions(account), name)
