"""The last lines of `bubbot init`: the next commands to type, and the bot to write to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from bubbot.app.models import keyless_models
from bubbot.app.settings import find_transcriber
from bubbot.models.local import model
from bubbot.models.unconfigured import missing_key_sentence
from bubbot.ops.onboarding.accounts import TITLES, PlatformAccount
from bubbot.ops.onboarding.changes import PendingEdits
from bubbot.settings.loader import Settings
from bubbot.texts import Texts


def describe_overrides(settings: Settings, changes: PendingEdits, texts: Texts) -> Iterator[str]:
    """Yield a line for each value that the environment overrides."""
    for (table, key), value in changes.values.items():
        section = getattr(settings, table[0], None)
        current = getattr(section, key, value)
        if len(table) == 1 and current != value and not (current is None and value == ""):
            yield texts.say("init_overridden", section=table[0], key=key)


def next_steps(
    settings: Settings,
    accounts: Sequence[PlatformAccount],
    *,
    prefix: str,
    running_pid: int | None,
    has_service: bool,
    environment: Mapping[str, str],
    texts: Texts,
) -> Iterator[str]:
    """Yield the next steps, a line each.

    Args:
        prefix: the command that runs bubbot for this home.
        running_pid: the process that runs the bot already; None if none does.
        has_service: a service runs the bot.
        environment: variables that may hold keys of models.
    """
    if not settings.model.name and not model.is_available():
        yield texts.say("init_no_model", prefix=prefix)
    for name, variables in keyless_models(settings, environment).items():
        if name.partition("/")[0] == settings.model.provider:
            reason = missing_key_sentence(name, variables, texts)
            yield texts.say("init_key_file", reason=reason, prefix=prefix)
        else:
            yield missing_key_sentence(name, variables, texts, is_configured=False)
    yield f"\n{texts.say('init_next')}"
    yield f"  {prefix} doctor    {texts.say('init_doctor')}"
    if running_pid is not None:
        yield f"  {texts.say('init_running', pid=running_pid, prefix=prefix)}"
    if not accounts:
        yield f"  {prefix} chat      {texts.say('init_chat')}"
        return
    if has_service:
        yield f"  {prefix} service status    {texts.say('init_state')}"
    else:
        yield f"  {prefix} run       {texts.say('init_run')}"
    for account in accounts:
        yield from _describe_first_message(account, prefix, texts)
    if not find_transcriber(settings):
        yield texts.say("init_voice")
        yield f"  {prefix} config set attachments.transcription openai/whisper-1"


def _describe_first_message(account: PlatformAccount, prefix: str, texts: Texts) -> Iterator[str]:
    title = TITLES[account.kind]
    mark = "@" if account.kind == "telegram" else ""
    bot = f"{mark}{account.name}" if account.name else texts.say("init_your_bot")
    if account.has_owner:
        yield texts.say("init_then", bot=bot, title=title)
        return
    yield texts.say("init_code", bot=bot, title=title)
    yield f"  {prefix} access approve CODE --role owner"
