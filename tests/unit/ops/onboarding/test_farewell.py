"""What `init` says at its end: the next commands, and which models lack their keys."""

from __future__ import annotations

from bubbot.ops.onboarding.farewell import next_steps
from bubbot.settings.loader import Settings
from bubbot.settings.sections import ModelSettings
from bubbot.texts import Texts


def lines(settings: Settings) -> list[str]:
    return [
        *next_steps(
            settings,
            [],
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
