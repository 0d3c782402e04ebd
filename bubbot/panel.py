"""The panel port: what a feature shows on the trace page.

A panel is a function that reads data, and a Jinja template that draws it. The function reads through the boundary of its
viewer alone. A panel writes nothing; a form on it may run a command of the shell for an owner. The page renders the template, and escapes every value; its macros for tables, links, times and the like are in
`bubbot/features/trace/templates/macros.html`. Panels of bubbot's features are in the `panels.py` of their folders, listed in
`bubbot.app.panels`; an installed package has `FeatureFactory.panels`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime, tzinfo
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any, Literal

from msgspec import Struct, field

from bubbot.tape.boundary import SharedTape, TapeBoundary
from bubbot.tape.entry import Kind, TapeEntry
from bubbot.tape.handle import TapeHandle
from bubbot.tape.query import IdRanges, TapeQuery
from bubbot.texts import Texts

DEFAULT_PANEL_ROWS = 50
"""Rows of a page of a panel."""


def find_template(name: str) -> Traversable:
    """Return the file of a template, see `Panel.template`. Raise `ModuleNotFoundError` if there is no such package."""
    package, _, file = name.rpartition(":")
    return files(package) / "templates" / file


class PanelReader(Struct, frozen=True):
    """What a panel may read, in the viewer's boundary.

    Attributes:
        tapes: the tapes that the viewer may see. Nothing can be written through it.
        settings: the settings of the feature, as its commands get them; None if it has none.
        zone: the time zone of the deployment.
        now: the current time.
        texts: the language of the page.
    """

    tapes: TapeBoundary
    settings: Any
    zone: tzinfo
    now: datetime
    texts: Texts


class PanelQuery(Struct, frozen=True):
    """What is asked of a panel.

    Attributes:
        session: the session; empty in a panel of the deployment, and for an archive or a tape without one.
        tape: the name of the tape; empty in a panel of the deployment.
        cursor: that of a page, as a table gave it; empty for the first page. Foreign: anything may stand in it.
        limit: rows at most.
        params: further parameters of a link or a form. Foreign, too.
    """

    session: str = ""
    tape: str = ""
    cursor: str = ""
    limit: int = DEFAULT_PANEL_ROWS
    params: Mapping[str, str] = field(default_factory=dict[str, str])

    def cursor_id(self) -> int | None:
        """Return the cursor as the id of an entry; None for the first page and for a text that is none."""
        return int(self.cursor) if self.cursor.isascii() and self.cursor.isdigit() and len(self.cursor) < 19 else None

    @property
    def below_cursor(self) -> IdRanges:
        """The ids that come on this page and later ones, if the newest come first."""
        cursor = self.cursor_id()
        return IdRanges(((1, None if cursor is None else max(cursor - 1, 0)),))

    async def read_page(self, tape: TapeHandle, *names: str) -> tuple[list[TapeEntry], str]:
        """Read the newest events of these names, without erased ones; return them with the cursor of the next page."""
        query = TapeQuery(
            tape.name, self.below_cursor, kinds=(Kind.EVENT,), names=names, newest=True, limit=self.limit + 1
        )
        found = (await tape.fetch([query]))[0]
        more = str(found[self.limit - 1].id) if len(found) > self.limit else ""
        return [entry for entry in found[: self.limit] if not entry.erased], more


class PanelForm(Struct, frozen=True):
    """What a form on a panel does: it runs a command of the shell, as whoever sends it. Only owners may.

    Attributes:
        command: the name, such as `judge label`.
        read: returns the arguments that the fields mean; they are foreign. Raises `ValueInvalid`.
    """

    command: str
    read: Callable[[PanelQuery, Mapping[str, str]], Mapping[str, Any]]


class Panel(Struct, frozen=True):
    """A part of the trace page.

    Attributes:
        name: unique among the panels of its scope; lower-case letters, digits and hyphens, as it stands in an address.
        title: its heading in English; `Texts.panel` translates those of bubbot.
        read: reads what the template shows as `panel`. Raises `AccessError` if the viewer may not see what it needs; the page
            says so.
        template: the package, a colon, and the file in its folder `templates`: `plants.page:garden.html`.
        shared: the tapes it reads that hold facts about many sessions.
        form: what its form does; None without one. The form posts to the address of the panel, and leads back to it.
    """

    name: str
    title: str
    scope: Literal["session", "deployment"]
    read: Callable[[PanelReader, PanelQuery], Awaitable[object]]
    template: str
    shared: Sequence[SharedTape] = ()
    form: PanelForm | None = None


class FeaturePanel(Struct, frozen=True):
    """A panel with the settings of its feature; see `PanelReader.settings`."""

    feature: str
    panel: Panel
    settings: Any

    async def read(
        self, tapes: TapeBoundary, query: PanelQuery, *, zone: tzinfo, now: datetime, texts: Texts
    ) -> object:
        """Read what the panel shows in the boundary of a viewer. Raise as the panel does."""
        return await self.panel.read(PanelReader(tapes, self.settings, zone, now, texts), query)
