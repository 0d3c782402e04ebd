"""Panels of other features on the page: what their templates ask for addresses and names."""

from __future__ import annotations

from collections.abc import Mapping

from bubbot.features.trace.render import url
from bubbot.gateway.names import NameBook
from bubbot.panel import Panel, PanelQuery
from bubbot.tape.boundary import TapeBoundary
from bubbot.tape.service import session_tape
from bubbot.tape.store import SYSTEM_TAPE_PREFIX

PARAMETER = "p."
"""The beginning of the names of a panel's own parameters in an address."""


class PanelView:
    """A panel while its page is made; macros.html asks it. `has_form` is true if its viewer may send its form.

    No form writes to an archive, or to a tape of the system.
    """

    def __init__(
        self, panel: Panel, title: str, query: PanelQuery, reader: TapeBoundary, names: NameBook, *, is_archive: bool
    ) -> None:
        self.title, self.template, self.parameters = title, panel.template, query.params
        self.find_chat, self.find_person = names.find_chat, names.find_person
        is_writable = not is_archive and not query.tape.startswith(SYSTEM_TAPE_PREFIX)
        self.has_form = panel.form is not None and reader.viewer.sees_all and is_writable
        self._name, self._tape, self._reader = panel.name, query.tape, reader

    def tape_address(self, tape: str = "", session: str = "", entry: int = 0, turn: str = "") -> str:
        """Return the address of a tape, or of an entry or a turn on it; empty if the viewer may not go there.

        Without a tape it is that of the session; without a session, too, that of the page.
        """
        tape = tape or (session_tape(self._reader.workspace, session) if session else self._tape)
        if not tape or not may_open(self._reader, tape):
            return ""
        if turn:
            return url("session", tape, "turn", turn)
        return url("session", tape, "entry", entry) if entry else url("session", tape)

    def own_address(self, params: Mapping[str, str], cursor: str = "") -> str:
        """Return the address of this panel with other parameters."""
        parts = ("session", self._tape, "panel", self._name) if self._tape else ("panel", self._name)
        return url(*parts, **{"cursor": cursor, **{f"{PARAMETER}{key}": value for key, value in params.items()}})


def may_open(reader: TapeBoundary, tape: str) -> bool:
    """Return true for the tapes that a viewer may see whole."""
    return reader.viewer.sees_all or (reader.may_read(tape) and not tape.startswith(SYSTEM_TAPE_PREFIX))


def parse_panel_query(query: Mapping[str, str], session: str = "", tape: str = "") -> PanelQuery:
    """Return what an address asks of a panel."""
    params = {name.removeprefix(PARAMETER): text for name, text in query.items() if name.startswith(PARAMETER)}
    return PanelQuery(session, tape, query.get("cursor", ""), params=params)
