"""What `init` says at its end: the next commands, and which models lack their keys."""

from __future__ import annotations

from bubbot.features.attachments.settings import AttachmentSettings
from bubbot.ops.onboarding.accounts import PlatformAccount
from bubbot.ops.onboarding.farewell import next_steps
from bubbot.settings.loader import ModelSettings, Settings
from bubbot.texts import Texts
from tests.made_settings import make_settings


def lines(settings: Settings, *accounts: PlatformAccount) -> list[str]:
    return [
        *next_steps(
            settings,
            accounts,
            prefix="bubbot",
            running_pid=None,
            has_service=False,
            environment={"PATH": "/bin"},
            texts=Texts(),
        )
    ]


def test_a_key_that_is_missing_is_asked_for_by_the_option_only_if_it_is_that_of_the_configured_provider() -> None:
    told = lines(Settings(model=ModelSettings(name="openai/gpt-5", fallback=["anthropic/claude-sonnet-4-5"])))
    (first,) = [line for line in told if line.startswith("openai/gpt-5")]
    (other,) = [line for line in told if line.startswith("anthropic/")]
    assert first.endswith("OPENAI_API_KEY is set here. `bubbot init --api-key-file FILE` takes it from a file.")
    assert other.endswith("is not set here ([model] api_key is only for the provider in [model] name).")


def test_who_has_a_bot_on_a_platform_is_told_of_the_setting_for_voice_messages_until_it_is_set() -> None:
    account = PlatformAccount("telegram", "telegram", "family_bot", has_owner=True)
    set_already = make_settings(AttachmentSettings(transcription="openai/whisper-1"))
    command = "  bubbot config set attachments.transcription openai/whisper-1"
    assert lines(Settings(), account)[-1] == command
    assert command not in lines(set_already, account)
    assert command not in lines(Settings())
