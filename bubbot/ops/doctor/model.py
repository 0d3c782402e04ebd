"""The check of the configured model's provider and key."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

from bubbot import plugins
from bubbot.app.models import LITELLM, keyless_models
from bubbot.errors import ConfigError, ModelError, ModelRateLimited, ModelRefused
from bubbot.home import Home
from bubbot.models.catalogue.keys import PROVIDER_KEY_VARIABLES
from bubbot.models.openai.providers import PROVIDERS
from bubbot.ops.doctor.secrets import command_to_set
from bubbot.ops.model_probe import call_model, describe_address, list_models
from bubbot.ports.checks import Finding, edit_command, shell_quote
from bubbot.settings.environment import read_variables
from bubbot.settings.loader import Settings

LIST_SECONDS = 5.0
"""The time for the list of the provider's models."""
CALL_SECONDS = 15.0
"""The time for one short call, of a provider that offers no list; litellm loads first."""


def check_provider(settings: Settings, home: Home, file: Path) -> Iterator[Finding]:
    """Send the key to the provider of the configured model; send nothing without a key.

    If the provider's list lacks the model, send the model a short message.
    """
    name, provider = settings.model.name, settings.model.provider
    is_ours = provider in {*plugins.list_names("bubbot.models")} - {LITELLM}
    if not name or is_ours or name in keyless_models(settings, read_variables()):
        return
    if settings.missing_secret("model", "api_key") is not None:
        return
    try:
        listed = asyncio.run(list_models(settings, name, seconds=LIST_SECONDS)) or ()
        is_listed = name.partition("/")[2] in {model.name for model in listed}
        if not is_listed:  # it may be retired, or an alias
            asyncio.run(call_model(settings, home, seconds=CALL_SECONDS))
    except ModelRateLimited as error:
        yield Finding("model.accepted", "ok", f"{_as_sentence(error)} It took the key.")
    except ModelRefused as error:
        if error.status in (401, 403):
            yield Finding("model.key_refused", "problem", _as_sentence(error), _command_to_replace_key(settings, file))
        else:
            yield Finding("model.refused", "problem", _as_sentence(error), edit_command(file))
    except ConfigError:
        return  # `model.unknown` tells of it
    except ModelError as error:
        cause = f"{_as_sentence(error)} If this machine is offline, that is why; a running bot tries again."
        yield Finding("model.unreachable", "warning", cause, _command_to_connect(settings))
    else:
        how = "lists it" if is_listed else "answered a short call"
        yield Finding("model.accepted", "ok", f"The provider of {name} {how}: the key and the address are right.")


def _as_sentence(error: ModelError) -> str:
    """Return the error with one full stop; the words of a provider may bring their own."""
    return f"{str(error).removesuffix('.')}."


def _command_to_replace_key(settings: Settings, file: Path) -> str:
    """Return the command that sets the key where it came from."""
    if settings.model.api_key is None:
        variables = read_variables()
        names = PROVIDER_KEY_VARIABLES.get(settings.model.provider, ())
        if name := next(filter(variables.get, names), ""):
            return f"read -r {name} && export {name}"
    return command_to_set(("model", "api_key"), file)


def _command_to_connect(settings: Settings) -> str:
    """Return the command that tests the connection to the provider, or else asks the model."""
    provider = PROVIDERS.get(settings.model.provider)
    if address := settings.model.api_base or (provider.address if provider else ""):
        return f"curl -sSI {shell_quote(describe_address(address))}"
    return "bubbot ask hello"
