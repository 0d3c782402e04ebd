"""The trace page of a home: its pages over the read-only tapes, and its viewers."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from hmac import compare_digest
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

from msgspec import Struct, structs

from bubbot.app.audit_host import SandboxedAuditors
from bubbot.app.auditors import AuditedPages, ServerAuditors, list_shared_tapes
from bubbot.app.installed import load_features, load_strategies
from bubbot.app.panels import load_panels, open_boundary
from bubbot.app.stores import find_workspace, open_home_store, unused_clock
from bubbot.app.tapes import now, tape_service
from bubbot.features.access.audits import AuditorDirectory
from bubbot.features.access.service import ACCESS_TAPE, parse_auditor
from bubbot.features.trace.pages import SubmitForm, TracePages
from bubbot.features.trace.tokens import TraceTokens, forget_key, read_key
from bubbot.home import Home
from bubbot.ports.channel import Role
from bubbot.ports.pages import Pages
from bubbot.server.pages import Admission, AdmitViewer, PagesAddress
from bubbot.settings.loader import Settings
from bubbot.settings.sections import TraceSettings
from bubbot.stores.sqlite.store import SqliteStore
from bubbot.tape.boundary import OWNER, TapeBoundary, Viewer
from bubbot.tape.store import TapeStore
from bubbot.texts import Texts


class OpenTrace(Struct, frozen=True):
    """The open trace page of a home.

    Attributes:
        auditors: knows who may see which sessions.
    """

    pages: Pages
    auditors: AuditorDirectory


@asynccontextmanager
async def open_trace(
    settings: Settings, home: Home, submit: SubmitForm | None = None, *, serves_auditors: bool = False
) -> AsyncIterator[OpenTrace]:
    """Open the pages of a home, also while its bot runs.

    Args:
        submit: runs the commands of forms.
        serves_auditors: auditors look, too: their pages come from a sandbox. One process of a home may do so.

    Raises:
        StoreError: there is no database.
    """
    store = await open_home_store(settings.store, home, now=unused_clock, readonly=True)
    try:
        workspace = await find_workspace(store, home)
        make = partial(make_pages, settings, workspace, submit)
        pages: Pages = make(store)
        async with AsyncExitStack() as stack:
            if settings.store.audit_url is not None:
                auditors = ServerAuditors(settings.store.audit_url.get_secret_value(), make)
                stack.push_async_callback(auditors.aclose)
                pages = AuditedPages(pages, auditors.answer)
            elif serves_auditors and isinstance(store, SqliteStore) and settings.trace.sandbox != "none":
                sandboxed = await _open_sandboxed(settings, home, store, workspace)
                stack.push_async_callback(sandboxed.aclose)
                pages = AuditedPages(pages, sandboxed.answer)
            yield OpenTrace(pages, AuditorDirectory(tape_service(store, ACCESS_TAPE)))
    finally:
        await store.aclose()


async def _open_sandboxed(settings: Settings, home: Home, store: SqliteStore, workspace: str) -> SandboxedAuditors:
    installed = load_features()
    panels = load_panels(settings, installed)
    auditors = SandboxedAuditors(
        store,
        home,
        kind=settings.trace.sandbox,
        open_reader=lambda viewer: open_boundary(store, viewer, workspace, panels, installed),
        shared=list_shared_tapes(settings),
        now=now,
        language=settings.bot.language,
        zone=settings.bot.timezone,
    )
    await auditors.start()
    return auditors


def make_pages(settings: Settings, workspace: str, submit: SubmitForm | None, store: TapeStore) -> TracePages:
    """Make the pages over a store that is open for reading."""
    installed = load_features()
    panels = load_panels(settings, installed)

    def open_reader(viewer: Viewer) -> TapeBoundary:
        return open_boundary(store, viewer, workspace, panels, installed)

    texts, zone = Texts(settings.bot.language), ZoneInfo(settings.bot.timezone)
    return TracePages(open_reader, load_strategies(), texts=texts, zone=zone, now=now, panels=panels, submit=submit)


def trace_tokens(home: Home) -> TraceTokens:
    """Return the maker and checker of a home's tokens. Raise `ConfigError` if its key is unusable."""
    return TraceTokens(read_key(home.path, os.urandom), lambda: now().timestamp())


def issue_token(home: Home, account: str, seconds: int) -> tuple[str, str]:
    """Make a token for an account; return the person's name and the token. Raise `ValueInvalid` if it is not an
    account.
    """
    person = ":".join(filter(None, parse_auditor(account)))
    home.ensure()
    return person, trace_tokens(home).issue(person, seconds)


def end_tokens(home: Home) -> None:
    """End all tokens of a home. A running bot keeps the old key until it restarts."""
    forget_key(home.path)


def admit_owner(token: str) -> AdmitViewer:
    """Admit the holder of this token as the owner, the user of this process."""

    async def admit(given: str) -> Admission | None:
        return Admission(OWNER) if compare_digest(given.encode(), token.encode()) else None

    return admit


def admit_people(tokens: TraceTokens, role_of: Callable[[str, str], Role], auditors: AuditorDirectory) -> AdmitViewer:
    """Admit people with tokens of this home, with their current rights.

    Args:
        role_of: returns the role of an account, by channel and id.
        auditors: knows who may see which sessions.
    """

    async def admit(given: str) -> Admission | None:
        holder = tokens.read(given)
        if holder is None:
            return None
        channel, _, number = holder.person.rpartition(":")
        if channel and role_of(channel, number).at_least(Role.OWNER):
            return Admission(structs.replace(OWNER, account=holder.person), holder.seconds)
        viewer = await auditors.find_viewer(holder.person)
        return Admission(viewer, holder.seconds) if viewer.sessions else None

    return admit


def pages_address(settings: TraceSettings, *, host: str | None = None, port: int | None = None) -> PagesAddress:
    """Return the address at which the pages are served."""
    name = urlsplit(settings.url).hostname if settings.url else None
    hosts = [*settings.hosts, *([name] if name else [])]
    is_https = bool(settings.url and settings.url.startswith("https:"))
    return PagesAddress("trace", host or settings.host, settings.port or 0 if port is None else port, hosts, is_https)
