"""The views of chats, each a fact on the tape `bubbot/views`, and the commands that change them."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType

from bubbot.command import Caller, command
from bubbot.errors import CommandRefused, ValueInvalid
from bubbot.features.views.facts import ChatView, ViewKind
from bubbot.features.views.results import (
    ChatViewArgs,
    RemoveViewArgs,
    ViewChange,
    ViewPlaceArgs,
    ViewRow,
    ViewsRemoved,
)
from bubbot.features.views.state import VIEWS_PROJECTION
from bubbot.ports.access import MayRead
from bubbot.ports.channel import Role
from bubbot.ports.session_names import keep_session, parse_session, require_user_tape
from bubbot.tape.handle import TapeHandle
from bubbot.tape.projection import ProjectionRunner
from bubbot.tool import ADMINISTERS, READS_PEOPLE, CommandHelp, HelpTopic

log = logging.getLogger(__name__)

MAX_VIEWS = 8
"""Views that one chat may have: each is read before every step of its turns."""
DEFAULT_COUNTS: Mapping[ViewKind, int] = MappingProxyType({"newest": 10, "anchors": 3, "search": 4})
ADDED, REMOVED = ChatView.EVENTS


class ViewService:
    """The one writer of the tape of views. Changes are durable when they return, and hold at the next step of a turn."""

    def __init__(
        self,
        tape: TapeHandle,
        may_read: MayRead,
        *,
        projections: ProjectionRunner | None = None,
        first_session: Callable[[str], Awaitable[str]] = keep_session,
    ) -> None:
        """Read nothing yet; see `load`."""
        self._may_read = may_read
        self._first_session = first_session
        projections = projections or ProjectionRunner()
        self._projected = projections.project(VIEWS_PROJECTION, tape)
        self._lock = projections.lock(tape.name)

    async def load(self) -> None:
        """Read the tape, once; later changes update the state."""
        await self._projected.ensure_loaded()

    def views_of(self, chat: str) -> list[ChatView]:
        """Return the views that a chat has, in the order in which they were added. Read nothing."""
        return [each.fact for each in self._projected.state.views if each.fact.chat == chat]

    def find_view(self, chat: str, session: str, source: str) -> ChatView | None:
        """Return the view of a chat that quotes a session under this source; None if it was removed. Read nothing."""
        return next((v for v in self.views_of(chat) if (v.session, v.source) == (session, source)), None)

    @command(
        "view list [chat]",
        chat=("view.list", "views"),
        form="[chat]",
        effect=READS_PEOPLE,
        rows="views",
        example="telegram:7",
        help=CommandHelp(HelpTopic.HISTORY, "What I am shown here of other chats", (",views",)),
    )
    async def list_views(self, caller: Caller, args: ViewPlaceArgs) -> list[ViewRow]:
        """List which views of other chats a chat is shown; in a shell those of all chats."""
        chat = await self._find_chat(caller, args.chat) if args.chat.strip() or caller.turn else ""
        views = [each for each in self._projected.state.views if chat in ("", each.fact.chat)]
        return [
            ViewRow(
                view.chat,
                view.session,
                view.what,
                view.count,
                view.start,
                view.agent,
                self._is_readable(view.chat, view.session),
                view.by,
                each.date,
            )
            for each in views
            for view in (each.fact,)
        ]

    @command(
        "view add <chat> <session>",
        chat=("view.add",),
        form="<session> [what]",
        example="telegram:7 telegram:42 --what anchors",
        role=Role.ADMIN,
        effect=ADMINISTERS,
        undo="view remove",
        help=CommandHelp(
            HelpTopic.ADMIN,
            "Show me here what goes on in another chat",
            (",view.add telegram:42", ",view.add telegram:42 anchors", ",view.add telegram:42 what=search count=2"),
        ),
    )
    async def add(self, caller: Caller, args: ChatViewArgs) -> ViewChange:
        """Show a chat what goes on in another one that it may read: beside its messages, as quotations, at every step."""
        chat, session = await self._find_pair(caller, args.chat, args.session)
        if chat == session:
            raise ValueInvalid("chat_view_itself", session=session)
        if not self._is_readable(chat, session):
            raise CommandRefused("chat_view_not_granted", session=session, chat=chat)
        if args.start.strip() and args.what != "newest":
            raise ValueInvalid("chat_view_from_newest", what=args.what)
        count = args.count or DEFAULT_COUNTS[args.what]
        view = ChatView(chat, session, args.what, args.agent.strip(), count, args.start.strip(), caller.id)
        async with self._lock:
            state = await self._projected.catch_up()
            before = state.views.find(view.subject)
            if before is not None and (before.fact.count, before.fact.start) == (view.count, view.start):
                return ViewChange(*view.subject, changed=False)
            if before is None and len(self.views_of(chat)) >= MAX_VIEWS:
                raise CommandRefused("chat_view_too_many", chat=chat, number=MAX_VIEWS)
            await self._projected.append(view.to_entry(ADDED))
        log.info("view added", extra={"action": "views.added", "session": session, "chat": chat})
        return ViewChange(*view.subject)

    @command(
        "view remove <chat> <session>",
        chat=("view.remove",),
        form="<session> [what]",
        example="telegram:7 telegram:42",
        role=Role.ADMIN,
        effect=ADMINISTERS,
        help=CommandHelp(
            HelpTopic.ADMIN,
            "Stop showing me another chat",
            (",view.remove telegram:42", ",view.remove telegram:42 what=search"),
        ),
    )
    async def remove(self, caller: Caller, args: RemoveViewArgs) -> ViewsRemoved:
        """Remove views of another chat; running answers are shown no more of it from their next step on."""
        chat, session = await self._find_pair(caller, args.chat, args.session)
        async with self._lock:
            await self._projected.catch_up()
            gone = [
                view
                for view in self.views_of(chat)
                if view.session == session and args.what in ("", view.what) and args.agent.strip() in ("", view.agent)
            ]
            if not gone:
                raise CommandRefused("chat_view_unknown", session=session, chat=chat)
            for view in gone:
                removed = ChatView(*view.subject, view.count, view.start, caller.id)
                await self._projected.append(removed.to_entry(REMOVED))
        log.info("views removed", extra={"action": "views.removed", "session": session, "chat": chat})
        return ViewsRemoved(chat, session, len(gone))

    async def _find_pair(self, caller: Caller, chat: str, session: str) -> tuple[str, str]:
        """Return the two sessions that the arguments name. Raise `ConfigError` if a name is none."""
        require_user_tape(session.strip(), "viewed")
        return await self._find_chat(caller, chat), await self._first_session(parse_session(session))

    async def _find_chat(self, caller: Caller, chat: str) -> str:
        """Return the chat that is shown a view: that of the caller, or for owners in person another one."""
        own = caller.turn.session if caller.turn else ""
        if not chat.strip() and own:
            return own
        require_user_tape(chat.strip(), "shown a view")
        named = await self._first_session(parse_session(chat))
        if named != own and not caller.has_power:
            raise CommandRefused("chat_view_other_chat", chat=named)
        return named

    def _is_readable(self, chat: str, session: str) -> bool:
        """Return true for a grant, and for a thread and the chat that it is in: whoever reads it can read that chat."""
        return self._may_read(chat, session) or (session.count(":") == 1 and chat.startswith(f"{session}:"))
