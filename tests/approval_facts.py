"""Facts about approvals, for tests: each with defaults for what a test is not about; and a service that reads them."""

from __future__ import annotations

import itertools
from typing import Any

from bubbot.errors import ValueInvalid
from bubbot.features.approvals.card import ApprovalCard
from bubbot.features.approvals.decider import Decider
from bubbot.features.approvals.facts import ApprovalAsked, ApprovalDecided, ApprovalOpened, StoredCall, ToolGranted
from bubbot.features.approvals.service import ApprovalService, asked_key, opened_key
from bubbot.features.approvals.settings import ApprovalSettings
from bubbot.stores.inmemory import InMemoryStore
from bubbot.tape.query import TapeQuery
from bubbot.tape.service import TapeService
from bubbot.texts import Texts
from bubbot.tool import GrantKind, GrantTarget
from tests.doubles import CountingIds, SteppingClock

EXPIRES = "2026-11-24T20:00:00+00:00"


def make_call(**changes: Any) -> StoredCall:
    """A call that reads a page, and for which a grant may stand."""
    data: dict[str, Any] = {
        "id": "approved0", "tool": "page.read", "name": "page_read", "arguments": "{}", "digest": "d",
        "details": "read it", "state": "", "target": GrantTarget(GrantKind.DOMAIN, "example.org"),
    }  # fmt: skip
    return StoredCall(**{**data, **changes})


def make_asked(*calls: StoredCall, **changes: Any) -> ApprovalAsked:
    """A card for these calls, or for one."""
    data: dict[str, Any] = {
        "id": "7KQ2M", "calls": calls or (make_call(),), "verdict": "ask", "why": ("outside",),
        "tainted_by": (("chat", 12),), "scopes": ("once", "chat", "always"), "expires": EXPIRES, "asker": "42",
        "channel": "telegram", "chat": "42", "window": 1,
    }  # fmt: skip
    return ApprovalAsked(**{**data, **changes})


def make_opened(**changes: Any) -> ApprovalOpened:
    """A card that waits for an answer."""
    data: dict[str, Any] = {
        "id": "7KQ2M", "session": "telegram:42", "tape": "chat", "verdict": "ask", "tools": ("post.send",),
        "targets": (("recipient", "bob"),), "scopes": ("once", "chat", "always"), "expires": EXPIRES,
        "channel": "telegram", "chat": "42", "thread": "", "direct": False, "space": "", "asker": "42",
        "asker_name": "", "asker_roles": (), "card": "telegram:42", "window": ("chat", 1), "digests": ("d",),
    }  # fmt: skip
    return ApprovalOpened(**{**data, **changes})


def make_card(
    texts: Texts, *calls: StoredCall, name: str = "", session: str = "", chat: str = "", **changes: Any
) -> ApprovalCard:
    """A card of these calls as people are shown it, in a chat that has to be named or in its own."""
    opened = make_opened(asker_name=name, **({"session": session} if session else {}))
    return ApprovalCard(make_asked(*calls, **changes), opened, texts, chat=chat)


def make_decided(scope: str, **changes: Any) -> ApprovalDecided:
    """Bob's answer by a button; none of the scopes is a no."""
    verdict = "approved" if scope else "denied"
    return ApprovalDecided("7KQ2M", "telegram:42", verdict, scope, "", "2", "Bob", "telegram", "button", **changes)


def make_grant(**changes: Any) -> ToolGranted:
    """A grant, everywhere and always."""
    data = {
        "tool": "post.send", "kind": "recipient", "value": "bob", "approval": "AAAAA", "by": "1", "channel": "telegram",
    }  # fmt: skip
    return ToolGranted(**{**data, **changes})


class ServiceBench:
    """A service over a store in memory; what waits is written as a turn would write it."""

    def __init__(self, store: InMemoryStore, clock: SteppingClock, **settings: Any) -> None:
        self.clock, self._store = clock, store
        numbers = itertools.count()
        self.service = ApprovalService(
            self.open_tape, clock, lambda size: bytes([next(numbers) % 256] * size), ApprovalSettings(**settings)
        )

    def open_tape(self, name: str) -> TapeService:
        """Open a tape."""
        return TapeService(self._store, name, now=self.clock, new_id=CountingIds("t"))

    async def ask(
        self, number: str = "AAAAA", *, verdict: str = "ask", scopes: tuple[str, ...] = ("once", "chat", "always")
    ) -> str:
        """Write an open card of a member's turn."""
        opened = make_opened(
            id=number, session="telegram:-9", card="telegram:-9", chat="-9", asker="2", asker_name="Bob",
            verdict=verdict, scopes=scopes, expires=self.service.expires,
        )  # fmt: skip
        await self.open_tape("chat").append([make_asked(id=number).to_entry(key=asked_key(number))])
        await self.open_tape("bubbot/access").append([opened.to_entry(key=opened_key(number))])
        return number

    async def answer(self, decider: Decider, number: str = "AAAAA", **options: Any) -> str | None:
        """Say yes; return why that does not count."""
        try:
            await self.service.answer(number, "approved", decider, **options)
        except ValueInvalid as error:
            return error.code.removeprefix("approval_")
        return None

    async def names(self) -> list[str | None]:
        """The names of the facts on the access tape."""
        return [entry.name for entry in (await self._store.fetch([TapeQuery("bubbot/access")]))[0]]
