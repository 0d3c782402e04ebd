"""The pages: which there are, and what each reads, through the boundary alone. Forms of panels run commands; nothing else writes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from datetime import tzinfo
from typing import Any, TypeAlias

from msgspec import Struct

from bubbot.command import Surface, explain
from bubbot.errors import AccessError, BubbotError, CommandRefused, EntryNotFound, TapeCorrupt
from bubbot.features.trace.entries import describe_entry, pretty
from bubbot.features.trace.export import MAX_EXPORT_ENTRIES, read_slice
from bubbot.features.trace.panels import PanelView, may_open, parse_panel_query
from bubbot.features.trace.render import STATIC_TYPES, PageRenderer, url
from bubbot.features.trace.request import RequestReader, may_open_blobs
from bubbot.features.trace.sessions import SessionDirectory, SessionRow
from bubbot.features.trace.timeline import group_turns, read_rows, read_running, read_timeline
from bubbot.features.trace.turn import find_turn, read_turn
from bubbot.features.trace.turn_list import TurnList, read_turns
from bubbot.features.trace.words import TextPage
from bubbot.gateway.names import NO_NAMES, NameBook
from bubbot.panel import FeaturePanel, PanelQuery
from bubbot.ports.pages import LoginForm, PageAnswer, PageRequest, file_policy, parse_number
from bubbot.runtime.context.strategy import ContextStrategies
from bubbot.tape.boundary import TapeBoundary, Viewer
from bubbot.tape.entry import TapeEntry, text_field, timestamp
from bubbot.tape.handle import Clock
from bubbot.tape.service import TapeService
from bubbot.tape.store import SYSTEM_TAPE_PREFIX
from bubbot.texts import Texts

SESSIONS_PER_PAGE = 50
TEXT_PAGE_CHARS = 30_000
TAIL_ENTRIES = 200
KINDS = ("sessions", "archives", "system")

OpenReader: TypeAlias = Callable[[Viewer], TapeBoundary]
"""Open the tapes as a viewer may see them."""
SubmitForm: TypeAlias = Callable[[str, Mapping[str, Any], Viewer], Awaitable[None]]
"""Run a command of the shell, by its name and arguments, as an owner. Raise a `BubbotError` if it is refused."""
Values: TypeAlias = dict[str, Any]


class PageLink(Struct, frozen=True):
    """A link to a page, with its name."""

    name: str
    text: str
    address: str


class TapePlace(Struct, frozen=True):
    """One tape, for one viewer, while a page about it is made."""

    request: PageRequest
    reader: TapeBoundary
    tape: TapeService
    row: SessionRow
    names: NameBook


class TracePages:
    """The pages of the trace. See `Pages`."""

    def __init__(
        self,
        open_reader: OpenReader,
        strategies: ContextStrategies,
        *,
        texts: Texts,
        zone: tzinfo,
        now: Clock,
        panels: Sequence[FeaturePanel] = (),
        submit: SubmitForm | None = None,
    ) -> None:
        """Set what the pages are made from.

        Args:
            open_reader: opens the tapes for a viewer.
            strategies: rebuild what a model was shown.
            zone: the time zone in which times are shown.
            panels: what the other features show.
            submit: runs the commands of their forms; None: nothing can be sent.
        """
        self._open_reader, self._texts, self._zone, self._now = open_reader, texts, zone, now
        self._renderer = PageRenderer(texts, zone)
        self._directory, self._submit = SessionDirectory(), submit
        self._requests = RequestReader(strategies)
        self._of_tape: Mapping[str, Callable[[TapePlace, Sequence[str]], Awaitable[PageAnswer]]] = {
            "": self._show_first,
            "turns": self._show_turns,
            "timeline": self._show_timeline,
            "turn": self._show_turn,
            "step": self._show_step,
            "entry": self._show_entry,
            "tail": self._show_tail,
            "export": self._show_export,
            "panel": self._show_tape_panel,
        }
        self._panels: Mapping[tuple[str, str], FeaturePanel] = {
            (each.panel.scope, each.panel.name): each for each in panels
        }

    def find_asset(self, name: str) -> PageAnswer | None:
        """See `Pages`."""
        if name not in STATIC_TYPES:
            return None
        return PageAnswer(self._renderer.read_static(name), STATIC_TYPES[name])

    def ask_for_token(self, form: LoginForm) -> PageAnswer:
        """See `Pages`."""
        body = self._renderer.render("login.html", form=form, viewer=None, site_links=())
        return PageAnswer(body, status=401)

    def show_error(self, error: BubbotError, status: int) -> PageAnswer:
        """See `Pages`."""
        reason = self._texts.reason(error)
        if isinstance(error, CommandRefused) and error.code in self._texts:  # of the fields of a form
            reason = explain(error, "", self._texts, Surface.SHELL)
        return PageAnswer(self._renderer.render("error.html", reason=reason, viewer=None, site_links=()), status=status)

    async def answer(self, request: PageRequest) -> PageAnswer:
        """See `Pages`."""
        reader = self._open_reader(request.viewer)
        if request.form is not None and request.path[:1] != ("panel",) and request.path[2:3] != ("panel",):
            raise EntryNotFound("there is no such form")
        match request.path:
            case ():
                return await self._show_sessions(request, reader)
            case ("panel", name):
                return await self._show_panel(request, reader, name)
            case ("session", name, *rest) if may_open(reader, name):
                row = await self._directory.find(reader, name)
                if row.entries == 0 and not row.is_running:
                    raise EntryNotFound(f"there is no tape {name[:100]!r}")
                action, *parts = rest or ("",)
                names = NO_NAMES if action == "tail" else await NameBook.read(reader, self._texts, row.session)
                tape = reader.open_tape(name, row.session)
                place = TapePlace(request, reader, tape, row.with_name(names), names)
                if action in self._of_tape:
                    return await self._of_tape[action](place, parts)
            case ("session", name, *_):
                raise AccessError(f"{request.viewer.name} may not see the tape {name[:100]}")
        raise EntryNotFound("there is no such page")

    async def _page(self, template: str, request: PageRequest, **values: Any) -> PageAnswer:
        # In a thread: the turns of the bot go on meanwhile.
        body = await asyncio.to_thread(
            self._renderer.render, template, viewer=request.viewer, site_links=self._site_links(), **values
        )
        return PageAnswer(body)

    async def _tape_page(self, template: str, place: TapePlace, **values: Any) -> PageAnswer:
        return await self._page(
            template,
            place.request,
            row=place.row,
            tape=place.row.tape,
            tape_links=self._tape_links(place.row.tape),
            **values,
        )

    def _site_links(self) -> list[PageLink]:
        return [
            PageLink(name, self._title(each), url("panel", name))
            for (scope, name), each in self._panels.items()
            if scope == "deployment"
        ]

    def _tape_links(self, tape: str) -> list[PageLink]:
        if tape.startswith(SYSTEM_TAPE_PREFIX):
            return []
        return [
            PageLink(name, self._title(each), url("session", tape, "panel", name))
            for (scope, name), each in self._panels.items()
            if scope == "session"
        ]

    def _title(self, each: FeaturePanel) -> str:
        return self._texts.panel(each.panel.name, each.panel.title)

    async def _show_panel(self, request: PageRequest, reader: TapeBoundary, name: str) -> PageAnswer:
        query = parse_panel_query(request.query)
        if request.form is not None:
            return await self._submit_form(("deployment", name), query, request)
        names = await NameBook.read(reader, self._texts)
        values = await self._read_panel("deployment", name, reader, query, names)
        return await self._page("panel.html", request, **values)

    async def _show_tape_panel(self, place: TapePlace, parts: Sequence[str]) -> PageAnswer:
        query = parse_panel_query(place.request.query, place.row.session, place.row.tape)
        name = parts[0] if len(parts) == 1 else ""
        if place.request.form is not None:
            return await self._submit_form(("session", name), query, place.request)
        values = await self._read_panel(
            "session", name, place.reader, query, place.names, is_archive=place.row.is_archive
        )
        return await self._tape_page("tape_panel.html", place, **values)

    async def _read_panel(
        self,
        scope: str,
        name: str,
        reader: TapeBoundary,
        query: PanelQuery,
        names: NameBook,
        *,
        is_archive: bool = False,
    ) -> Values:
        each = self._panels.get((scope, name))
        if each is None:
            raise EntryNotFound("there is no such page")
        panel = await each.read(reader, query, zone=self._zone, now=self._now(), texts=self._texts)
        view = PanelView(each.panel, self._title(each), query, reader, names, is_archive=is_archive)
        return {"panel": panel, "view": view, "name": name}

    async def _submit_form(self, key: tuple[str, str], query: PanelQuery, request: PageRequest) -> PageAnswer:
        """Run the command of a panel's form, and lead back to the panel."""
        form = self._panels[key].panel.form if key in self._panels else None
        if form is None or self._submit is None:
            raise EntryNotFound("there is no such form")
        if not request.viewer.sees_all:
            raise AccessError(f"{request.viewer.name} may look, and only an owner may send a form")
        await self._submit(form.command, form.read(query, request.form or {}), request.viewer)
        return PageAnswer(status=303, location=url(*request.path, **request.query))

    async def _show_export(self, place: TapePlace, _parts: Sequence[str]) -> PageAnswer:
        """Ask which part, or send it as a file."""
        texts, request = self._texts, place.request
        first, last = request.number("first"), request.number("last")
        if first is None or last is None:
            first = max(place.row.entries - MAX_EXPORT_ENTRIES + 1, 1)
            return await self._tape_page("export.html", place, first=first)
        groups = await read_slice(place.tape, first, last, texts)
        style = self._renderer.style
        written = timestamp(self._now())[:19].replace("T", " ")
        body = await asyncio.to_thread(
            self._renderer.render,
            "file.html",
            row=place.row,
            groups=groups,
            first=groups[0].rows[0].id,
            last=groups[-1].rows[-1].id,
            written=f"{written} UTC",
            style=style,
            policy=file_policy(style),
        )
        return PageAnswer(body, filename=f"trace-{first}-{groups[-1].rows[-1].id}.html", policy=file_policy(style))

    async def _show_sessions(self, request: PageRequest, reader: TapeBoundary) -> PageAnswer:
        kind = request.query.get("kind", KINDS[0])
        kind = kind if kind in KINDS else KINDS[0]
        rows = await self._directory.list_rows(reader, kind)
        number = max(min(request.number("page") or 1, -(-len(rows) // SESSIONS_PER_PAGE)), 1)
        names = await NameBook.read(reader, self._texts)
        shown = [row.with_name(names) for row in rows[(number - 1) * SESSIONS_PER_PAGE : number * SESSIONS_PER_PAGE]]
        kinds = KINDS if request.viewer.sees_all else KINDS[:2]
        return await self._page(
            "sessions.html",
            request,
            rows=shown,
            kind=kind,
            kinds=kinds,
            number=number,
            total=len(rows),
            has_more=number * SESSIONS_PER_PAGE < len(rows),
        )

    async def _show_timeline(self, place: TapePlace, _parts: Sequence[str]) -> PageAnswer:
        request = place.request
        timeline = await read_timeline(place.tape, request.number("before"), request.number("from"))
        running = await read_running(place.reader, place.row.tape) if timeline.is_newest else ()
        return await self._tape_page(
            "timeline.html", place, timeline=timeline, groups=group_turns(timeline.rows), running=running
        )

    async def _show_first(self, place: TapePlace, parts: Sequence[str]) -> PageAnswer:
        """Show the turns, or the entries of a tape without turns."""
        turns = TurnList((), 0)
        if place.row.has_turns:
            with suppress(TapeCorrupt):  # the timeline reads less
                turns = await self._read_turns(place)
        return await (self._show_turn_list(place, turns) if turns.lines else self._show_timeline(place, parts))

    async def _show_turns(self, place: TapePlace, _parts: Sequence[str]) -> PageAnswer:
        return await self._show_turn_list(place, await self._read_turns(place))

    async def _read_turns(self, place: TapePlace) -> TurnList:
        return await read_turns(place.reader, place.tape, place.row.session, place.request.number("before"))

    async def _show_turn_list(self, place: TapePlace, turns: TurnList) -> PageAnswer:
        is_newest = place.request.number("before") is None
        running = await read_running(place.reader, place.row.tape) if is_newest else ()
        return await self._tape_page("turns.html", place, turns=turns, running=running, is_newest=is_newest)

    async def _show_tail(self, place: TapePlace, _parts: Sequence[str]) -> PageAnswer:
        """Return what came after an entry, and what a running turn has written so far, without the page around it."""
        after = place.request.number("after", 0) or 0
        head = place.row.entries
        low = max(after + 1, head - TAIL_ENTRIES + 1)
        groups = group_turns([row async for row in read_rows(place.tape, low, head)])
        running = await read_running(place.reader, place.row.tape)
        return await self._tape_page("tail.html", place, groups=groups, running=running, head=head)

    async def _show_turn(self, place: TapePlace, parts: Sequence[str]) -> PageAnswer:
        if len(parts) != 1:
            raise EntryNotFound("there is no such page")
        span = await find_turn(place.tape, parts[0])
        return await self._tape_page("turn.html", place, turn=await read_turn(place.tape, span))

    async def _show_step(self, place: TapePlace, parts: Sequence[str]) -> PageAnswer:
        if not parts:
            raise EntryNotFound("there is no such page")
        step = await place.tape.entry(_entry_id(parts[0]))
        if len(parts) > 1:
            text = await self._requests.read_part(place.reader, place.tape, step, parts[1])
            base = url("session", place.row.tape, "step", step.id, parts[1])
            return await self._show_text(place, text, base, self._texts.say("trace_part", step=step.id, part=parts[1]))
        shown = await self._requests.read(place.reader, place.tape, step, place.request.number("message"))
        turn = await read_turn(place.tape, await find_turn(place.tape, str(step.id)))
        steps = [each for each in turn.record.steps if each.fork == text_field(step.meta, "fork")]
        position = next((index for index, each in enumerate(steps) if each.id == step.id), None)
        if position is None:
            raise EntryNotFound(f"the entry {step.id} is not among the first entries of its turn: see the timeline")
        template = "step_part.html" if place.request.query.get("part") == "step" else "step.html"
        return await self._tape_page(
            template,
            place,
            step=steps[position],
            position=position,
            steps=steps,
            turn=turn,
            shown=shown,
        )

    async def _show_entry(self, place: TapePlace, parts: Sequence[str]) -> PageAnswer:
        if not parts:
            raise EntryNotFound("there is no such page")
        entry = await place.tape.entry(_entry_id(parts[0]))
        if len(parts) == 3 and parts[1] == "blob":
            return await self._show_blob(place, entry, parts[2])
        row = describe_entry(entry, TEXT_PAGE_CHARS)
        facts = pretty({"payload": entry.payload, "meta": entry.meta})
        return await self._tape_page(
            "entry.html",
            place,
            entry=row,
            key=entry.key,
            facts=TextPage.of(facts, place.request.number("page", 1) or 1, TEXT_PAGE_CHARS),
            blobs=place.reader.list_blobs(entry) if may_open_blobs(place.reader, entry) else (),
            address=url("session", place.row.tape, "entry", entry.id),
        )

    async def _show_blob(self, place: TapePlace, entry: TapeEntry, digest: str) -> PageAnswer:
        if not may_open_blobs(place.reader, entry) or digest not in place.reader.list_blobs(entry):
            raise EntryNotFound(f"the entry {entry.id} has no such blob")
        data = await place.reader.get_blob(place.row.tape, digest)
        if (media_type := image_type(data)) and place.request.query.get("raw"):
            return PageAnswer(data, media_type)
        address = url("session", place.row.tape, "entry", entry.id, "blob", digest)
        title = self._texts.say("trace_blob", entry=entry.id, digest=digest[:12], size=len(data))
        if media_type:
            return await self._tape_page("image.html", place, title=title, address=address, entry_id=entry.id)
        return await self._show_text(place, data.decode(errors="backslashreplace"), address, title)

    async def _show_text(self, place: TapePlace, text: str, address: str, title: str) -> PageAnswer:
        page = TextPage.of(text, place.request.number("page", 1) or 1, TEXT_PAGE_CHARS)
        return await self._tape_page("text.html", place, page=page, address=address, title=title)


def _entry_id(text: str) -> int:
    number = parse_number(text)
    if number is None:
        raise EntryNotFound(f"{text[:50]!r} is no entry: entries have numbers")
    return number


_IMAGES = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
)


def image_type(data: bytes) -> str:
    """Return the media type of an image in which nothing can run, by its first bytes; empty for anything else."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for mark, kind in _IMAGES if data.startswith(mark)), "")
