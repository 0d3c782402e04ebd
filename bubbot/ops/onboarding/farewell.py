"""The last lines of `bubbot init`: the next commands to type, and the bot to write to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from bubbot.app.models import keyless_models
from bubbot.models.local import model
from bubbot.models.unconfigured import missing_key_sentence
from bubbot.ops.onboarding.accounts import TITLES, PlatformAccount
from bubbot.ops.onboarding.changes import PendingEdits
from bubbot.settings.loader import Settings


def describe_overrides(settings: Settings, changes: PendingEdits) -> Iterator[str]:
    """Yield a line for each value that the environment overrides."""
    for (table, key), value in changes.values.items():
        section = getattr(settings, table[0], None)
        current = getattr(section, key, value)
        if len(table) == 1 and current != value and not (current is None and value == ""):
            yield f"[{table[0]}] {key}: the environment sets another value, which takes precedence."


def next_steps(
    settings: Settings,
    accounts: Sequence[PlatformAccount],
    *,
    prefix: str,
    running_pid: int | None,
    has_service: bool,
    environment: Mapping[str, str],
) -> Iterator[str]:
    """Yield the next steps, a line each.

    Args:
        settings: the settings as written.
        accounts: the bot's accounts on platforms.
        prefix: the command that runs bubbot for this home.
        running_pid: the process that runs the bot already; None if none does.
        has_service: a service runs the bot.
        environment: variables that may hold keys of models.
    """
    if not settings.model.name and not model.is_available():
        yield f"No model is set yet: `{prefix} init` asks for one again, and until then commands work."
    for name, variables in keyless_models(settings, environment).items():
        if name.partition("/")[0] == settings.model.provider:
            yield f"{missing_key_sentence(name, variables)} `{prefix} init --api-key-file FILE` takes it from a file."
        else:
            yield missing_key_sentence(name, variables, is_configured=False)
    yield "\nNext:"
    yield f"  {prefix} doctor    checks whether everything is in order"
    if running_pid is not None:
        yield f"  The bot runs (process {running_pid}): `{prefix} reload` applies this, and names what needs a restart."
    if not accounts:
        yield f"  {prefix} chat      talks with the bot in this terminal"
        return
    if has_service:
        yield f"  {prefix} service status    shows the state of the running bot"
    else:
        yield f"  {prefix} run       runs the bot, until Ctrl-C"
    for account in accounts:
        yield from _describe_first_message(account, prefix)


def _describe_first_message(account: PlatformAccount, prefix: str) -> Iterator[str]:
    title = TITLES[account.kind]
    mark = "@" if account.kind == "telegram" else ""
    bot = f"{mark}{account.name}" if account.name else "your bot"
    if account.has_owner:
        yield f"Then send any message to {bot} on {title}: it answers."
        return
    yield f"Then send any message to {bot} on {title}. If you are not its owner yet, it answers with a code. In another terminal, approve yourself with it:"
    yield f"  {prefix} access approve CODE --role owner"
