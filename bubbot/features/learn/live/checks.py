"""What the doctor finds of the recording for training: where calls go to, whether that is safe, and what came too late."""

from __future__ import annotations

from urllib.parse import urlsplit

from bubbot.errors import StoreError
from bubbot.features.learn.live.state import LIVE_PROJECTION
from bubbot.features.learn.settings import LearnSettings
from bubbot.features.learn.tape import LEARN_TAPE
from bubbot.features.learn.weights.state import LEARN_PROJECTION
from bubbot.hosts import is_this_machine
from bubbot.ports.checks import Check, Finding, HomeReader, edit_command
from bubbot.tape.projection import read_projection

DEFAULT_KEY = "areal-admin-key"
"""The admin key of AReaL if nobody sets one; everybody knows it."""
REACH_SECONDS = 5.0


async def check_endpoint(home: HomeReader) -> list[Finding]:
    """Report where calls go to, and what makes that unsafe or impossible."""
    settings = home.settings
    if not isinstance(settings, LearnSettings) or not settings.endpoint:
        return []
    parts, findings = urlsplit(settings.endpoint), list[Finding]()
    is_far = not is_this_machine(parts.hostname or "")
    if parts.scheme == "http" and is_far:
        cause = (
            f"Calls of chats go to {parts.netloc} without encryption, with what was said and with keys: everybody in between can read "
            "them. Use an address in [learn] endpoint that begins with https, or a proxy on this machine."
        )
        findings.append(Finding("learn.unencrypted", "warning", cause, edit_command(home.config)))
    if settings.endpoint_key is not None and settings.endpoint_key.get_secret_value() == DEFAULT_KEY:
        cause = (
            f"[learn] endpoint_key is {DEFAULT_KEY}, which everybody knows: whoever reaches {parts.netloc} can read what it records. "
            "Give the proxy a key of its own."
        )
        findings.append(Finding("learn.default_key", "warning", cause, edit_command(home.config)))
    if not settings.endpoint_sessions:
        cause = "[learn] endpoint is set, but no chat in endpoint_sessions: nothing is recorded."
        return [*findings, Finding("learn.no_chats", "warning", cause, edit_command(home.config))]
    if (problem := await _reach(settings.endpoint)) is not None:
        cause = (
            f"The proxy at {parts.netloc} cannot be reached ({problem}): nothing is recorded, and the chats are answered by their own "
            "models. Start it, or take [learn] endpoint away."
        )
        return [*findings, Finding("learn.unreachable", "warning", cause, edit_command(home.config))]
    chats = ", ".join(settings.endpoint_sessions)
    cause = f"Calls of {chats} are answered and recorded by {parts.netloc}, if their people allow training."
    return [*findings, Finding("learn.ok", "ok", cause)]


async def check_late(home: HomeReader) -> list[Finding]:
    """Report judgements that came after their recorded session had ended.

    Raises:
        TapeCorrupt: a fact cannot be read, and no bot starts with it.
    """
    settings = home.settings
    try:
        async with home.open_tape(LEARN_TAPE) as tape:
            await read_projection(LEARN_PROJECTION, tape)
            state = await read_projection(LIVE_PROJECTION, tape)
    except StoreError:
        return []  # the check of the database reports it
    if not isinstance(settings, LearnSettings) or not settings.endpoint or not state.late:
        return []
    cause = (
        f"{state.late} judgements came after the recorded session of their answer had ended, and the proxy does not have them; "
        f"{state.rewards} came in time. Give people more time with [learn] endpoint_idle, or export the chats (bubbot export areal)."
    )
    return [Finding("learn.late", "warning", cause, edit_command(home.config))]


async def _reach(url: str) -> str | None:
    """Return why nothing answers at an address; None if something does."""
    # Imported here: `bubbot status` loads the checks, and asks none of them.
    from aiohttp import ClientError, ClientSession, ClientTimeout

    try:
        async with (
            ClientSession(timeout=ClientTimeout(REACH_SECONDS)) as http,
            http.get(f"{url.rstrip('/')}/health", allow_redirects=False) as response,
        ):
            await response.read()
    except TimeoutError:
        return "no answer in time"
    except (ClientError, OSError, ValueError) as error:
        return type(error).__name__
    return None


CHECKS = (
    Check("the recording for training", check_endpoint),
    Check("late judgements of recorded chats", check_late, reads_tapes=True),
)
