"""What auditors look at, and what keeps tenants and auditors apart on a PostgreSQL server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from bubbot.app.installed import load_features
from bubbot.app.panels import load_panels
from bubbot.errors import AccessError, BubbotError, ConfigError
from bubbot.features.access.facts import AccessRevoked, Audit
from bubbot.features.access.service import ACCESS_TAPE
from bubbot.ports.pages import LoginForm, PageAnswer, PageRequest, Pages
from bubbot.settings.loader import Settings
from bubbot.tape.boundary import SharedTape
from bubbot.tape.store import TapeStore

MakePages: TypeAlias = Callable[[TapeStore], Pages]
"""Make the pages over a store."""


class AuditedPages:
    """Answers owners with their own pages, and auditors through `answer_auditor`. See `Pages`."""

    def __init__(self, pages: Pages, answer_auditor: Callable[[PageRequest], Awaitable[PageAnswer]]) -> None:
        """Set the pages of the owner, and what answers an auditor."""
        self._pages, self._answer_auditor = pages, answer_auditor

    def find_asset(self, name: str) -> PageAnswer | None:
        """See `Pages`."""
        return self._pages.find_asset(name)

    def ask_for_token(self, form: LoginForm) -> PageAnswer:
        """See `Pages`."""
        return self._pages.ask_for_token(form)

    def show_error(self, error: BubbotError, status: int) -> PageAnswer:
        """See `Pages`."""
        return self._pages.show_error(error, status)

    async def answer(self, request: PageRequest) -> PageAnswer:
        """See `Pages`."""
        if request.viewer.sees_all:
            return await self._pages.answer(request)
        if request.form is not None:
            raise AccessError(f"{request.viewer.name} may look, and only an owner may send a form")
        return await self._answer_auditor(request)


class ServerAuditors:
    """The pages of auditors over a PostgreSQL server, which itself shows each the granted tapes only."""

    def __init__(self, url: str, make_pages: MakePages) -> None:
        """Set the address of the auditors' role, and what makes their pages."""
        self._url, self._make_pages = url, make_pages
        self._opened: dict[str, tuple[TapeStore, Pages]] = {}
        self._lock = asyncio.Lock()

    async def answer(self, request: PageRequest) -> PageAnswer:
        """Answer an auditor; see `Pages.answer`. Raise `StoreError` if the server or the role is unusable."""
        from bubbot.stores.postgres.store import open_readonly  # few homes have a server

        name = request.viewer.name
        async with self._lock:
            if name not in self._opened:
                store = await open_readonly(self._url, auditor=name)
                self._opened[name] = store, self._make_pages(store)
        return await self._opened[name][1].answer(request)

    async def aclose(self) -> None:
        """Close the connections."""
        for store, _ in self._opened.values():
            await store.aclose()


def list_shared_tapes(settings: Settings) -> Sequence[SharedTape]:
    """List the tapes of which auditors see the facts about granted sessions, in the order in which they count."""
    panels = load_panels(settings, load_features())
    return tuple(dict.fromkeys(shared for each in panels for shared in each.panel.shared))


def add_server_auditor(settings: Settings, tenant: str) -> str:
    """Make the role and the views of auditors on the server of the settings; return the address for them.

    Raises:
        ConfigError: the tapes are on no server.
        StoreError: the server or the role is unusable.
    """
    url = _require_server(settings)
    from bubbot.stores.postgres.auditors import StoredGrants, add_auditor  # few homes have a server

    granted, revoked = Audit.EVENTS
    (ended,) = AccessRevoked.EVENTS
    grants = StoredGrants(tape=ACCESS_TAPE, granted=granted, revoked=revoked, ended=ended)
    references, shared = load_features().references, list_shared_tapes(settings)
    return add_auditor(url, tenant, grants, shared, references).url


def add_server_tenant(settings: Settings, tenant: str, now: str) -> str:
    """Make a tenant on the server of the settings; return the address for its bot. Raise as `add_server_auditor` does."""
    url = _require_server(settings)
    from bubbot.stores.postgres.tenants import add_tenant  # few homes have a server

    return add_tenant(url, tenant, now=now).url


def _require_server(settings: Settings) -> str:
    if settings.store.url is None:
        raise ConfigError(
            "[store] url: this is for a PostgreSQL server, and the tapes of this home are in its own database; give the address "
            "of the database's owner, such as BUBBOT_STORE__URL=postgresql://postgres@localhost/bubbot"
        )
    return settings.store.url.get_secret_value()
