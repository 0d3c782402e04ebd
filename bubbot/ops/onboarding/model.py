"""The questions of `bubbot init` about the model: its provider, the key, its name, and a call that tries them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import SecretStr

from bubbot.app.models import keyless_models
from bubbot.errors import ConfigError, ModelError
from bubbot.home import Home
from bubbot.models.catalogue.keys import PROVIDER_KEY_VARIABLES
from bubbot.models.local import model as local
from bubbot.ops.model_probe import call_model, describe_address, list_models
from bubbot.ops.onboarding import answers
from bubbot.ops.onboarding.changes import PendingEdits
from bubbot.ops.onboarding.console import Console
from bubbot.ops.onboarding.existing import ExistingConfig
from bubbot.ops.onboarding.providers import PROVIDER_OPTIONS, ProviderOption, describe_model, suggest_models
from bubbot.ops.onboarding.questions import InitOptions
from bubbot.ports.model import ListedModel
from bubbot.settings.environment import read_variables
from bubbot.settings.loader import Settings

LIST_SECONDS = 10.0
"""The time for the list of a provider's models."""
CALL_SECONDS = 60.0
"""The time for the call that tries a model; one on this machine loads first."""
_SECTION = ("model",)


class ModelPrompter:
    """Asks about the model; collects the answers in `changes`."""

    def __init__(
        self, console: Console, existing: ExistingConfig, options: InitOptions, changes: PendingEdits, home: Home
    ) -> None:
        self._console = console
        self._existing = existing
        self._options = options
        self._changes = changes
        self._home = home

    def ask(self) -> None:
        """Ask for the model, its key and its address. Raises `ConfigError`, `InputEnded`."""
        options, current = self._options, self._existing.read_value("model", "name")
        if options.model is None:
            self._console.begin_step(self._say("init_model"))
        if options.model is not None:
            self._changes.set_value(_SECTION, "name", answers.parse_model_name(options.model))
        elif current or self._console.is_unattended:
            self._offer_current(str(current or ""))
        else:
            self._ask_kind()
        if options.api_key is not None:
            try:
                self._changes.set_secret(_SECTION, "api_key", answers.parse_secret(options.api_key))
            except ConfigError as error:
                raise ConfigError(f"The key of the model: {error}") from error

    def _say(self, name: str, /, **values: object) -> str:
        return self._console.texts.say(name, **values)

    def _offer_current(self, name: str) -> None:
        if (
            self._console.choose("", {"keep": self._say("init_kept", name=name), "other": self._say("init_another")})
            == "other"
        ):
            self._ask_kind()
            return
        settings = self._existing.settings
        is_missing = name in keyless_models(settings, read_variables()) and settings.model.name == name
        # A key whose file is missing has its own question.
        if is_missing and self._options.api_key is None and not settings.missing_secret("model", "api_key"):
            self._keep_key(self._ask_key(name.partition("/")[0], name))

    def _ask_kind(self) -> None:
        is_local_available = local.is_available()
        kinds = {"local": self._say("init_local")} if is_local_available else {}
        kinds |= {name: option.describe(self._console.texts) for name, option in PROVIDER_OPTIONS.items()}
        kinds["other"] = self._say("init_other_provider")
        if not is_local_available:
            kinds["later"] = self._say("init_later")
        match self._console.choose("", kinds):
            case "local":
                self._changes.set_value(_SECTION, "name", "local")
                self._forget_address()
            case "later":
                pass
            case "other":
                name = self._console.ask(self._say("init_its_name"), "", self._require_model_name)
                self._changes.set_value(_SECTION, "name", name)
                self._forget_address()
                self._keep_key(self._ask_key(name.partition("/")[0], name))
            case choice:
                self._set_up(PROVIDER_OPTIONS[choice])

    def _set_up(self, option: ProviderOption) -> None:
        """Ask what this provider needs, and try it if the person agrees."""
        draft = _Draft(option)
        if option.address:
            draft.address = self._console.ask(self._say("init_its_address"), option.address, answers.parse_address)
        if option.takes_key:
            draft.key = self._ask_key(
                option.name, option.format_title(self._console.texts), is_optional=bool(option.address)
            )
        draft.is_tried = self._can_try(draft) and self._agrees_to_try(draft)
        self._read_list(draft)
        draft.name = self._ask_name(draft)
        self._try(draft)
        self._changes.set_value(_SECTION, "name", draft.name)
        is_usual = option.name == "ollama_chat" and draft.address == option.address
        if draft.address and not is_usual:
            self._changes.set_value(_SECTION, "api_base", draft.address)
        else:
            self._forget_address()
        self._keep_key(draft.key)

    def _read_list(self, draft: _Draft) -> None:
        """Read the provider's list of models until that works or the person stops."""
        while draft.is_tried:
            who = self._name_provider(draft.option)
            self._console.tell(f"  {self._say('init_asks_models', who=who)}")
            try:
                settings = self._settings(draft, "-")
                listed = asyncio.run(list_models(settings, who, seconds=LIST_SECONDS))
            except ModelError as error:
                self._decide(draft, error)
            else:
                draft.listed = listed or ()
                return

    def _try(self, draft: _Draft) -> None:
        """Call the model until it answers or the person stops."""
        while draft.is_tried:
            self._console.tell(f"  {self._say('init_asks_word', name=draft.name)}")
            try:
                settings = self._settings(draft, draft.name.partition("/")[2])
                asyncio.run(call_model(settings, self._home, seconds=CALL_SECONDS))
            except (ModelError, ConfigError) as error:
                self._decide(draft, error)
            else:
                self._console.tell(f"  {self._say('init_answered')}")
                return

    def _can_try(self, draft: _Draft) -> bool:
        """Return true if a call has everything it needs."""
        option, settings = draft.option, self._existing.settings
        has_key = bool(draft.key) or (settings.model.api_key is not None and settings.model.provider == option.name)
        variables = PROVIDER_KEY_VARIABLES.get(option.name, ())
        return bool(has_key or option.address or any(map(read_variables().get, variables)))

    def _agrees_to_try(self, draft: _Draft) -> bool:
        place = describe_address(draft.address) if draft.address else draft.option.format_title(self._console.texts)
        options = {"yes": self._say("init_try_yes"), "no": self._say("init_no")}
        return self._console.choose(self._say("init_try_with", place=place), options) == "yes"

    def _decide(self, draft: _Draft, failure: ModelError | ConfigError) -> None:
        """Print the failure, and change the draft as the person chooses."""
        self._console.tell(f"  {str(failure).rstrip('.')}.")
        is_refused = isinstance(failure, ModelError) and failure.status in (401, 403)
        actions = {} if is_refused else {"again": self._say("init_again")}
        if draft.option.takes_key:
            actions["key"] = self._say("init_other_key")
        if draft.name:
            actions["model"] = self._say("init_other_model")
        actions["keep"] = self._say("init_untried")
        match self._console.choose(self._say("init_what_now"), actions):
            case "key":
                draft.key = self._ask_key(
                    draft.option.name, draft.option.format_title(self._console.texts), typed=draft.key
                )
            case "model":
                draft.name = self._ask_name(draft)
            case "keep":
                draft.is_tried = False

    def _ask_name(self, draft: _Draft) -> str:
        console, option = self._console, draft.option
        suggestions = suggest_models(option, draft.listed or None)
        for number, name in enumerate(suggestions, start=1):
            console.tell(f"  {number}  {describe_model(option, name, console.texts)}")

        def parse(text: str) -> str:
            is_number = text.isascii() and text.isdigit() and 1 <= int(text[:4]) <= len(suggestions)
            model = suggestions[int(text[:4]) - 1] if is_number else text
            return self._require_model_name(f"{option.name}/{model.removeprefix(f'{option.name}/')}")

        question = self._say("init_model_number" if suggestions else "init_model_there")
        name = console.ask(question, "1" if suggestions else "", parse)
        known = {model.name for model in draft.listed}
        if known and name.partition("/")[2] not in known:
            console.tell(f"  {self._say('init_not_listed', who=self._name_provider(option))}")
        return name

    def _ask_key(self, provider: str, title: str, *, is_optional: bool = False, typed: str = "") -> str:
        """Ask for a key. Return an empty text if there is none, it stays, or the environment has it. Enter keeps `typed`."""
        names = PROVIDER_KEY_VARIABLES.get(provider, (f"{provider.upper().replace('-', '_')}_API_KEY",))
        found = next(filter(read_variables().get, names), "")
        settings = self._existing.settings
        if typed:
            hint = self._say("init_keeps_typed")
        elif settings.model.api_key is not None and settings.model.provider == provider:
            hint = self._say("init_keeps")
        elif is_optional:
            hint = self._say("init_none")
        else:
            hint = self._say("init_takes" if found else "init_in_environment", variable=found or names[0])
        while text := self._console.ask_secret(self._say("init_key", title=title, hint=hint)):
            try:
                return answers.parse_secret(text, self._console.texts)
            except ConfigError as error:
                self._console.tell(f"  {error}")
        return typed

    def _name_provider(self, option: ProviderOption) -> str:
        """Return the provider in a sentence."""
        return option.title or self._say("init_the_server")

    def _require_model_name(self, text: str) -> str:
        if name := answers.parse_model_name(text):
            return name
        raise ConfigError(self._say("init_model_name"))

    def _keep_key(self, key: str) -> None:
        """Record a key. Without one, forget that of another provider: it must not be sent to this one."""
        if key:
            self._changes.set_secret(_SECTION, "api_key", key)
            return
        name = self._changes.values.get((_SECTION, "name"))
        before = self._existing.read_value("model", "name")
        if name and str(before or "").partition("/")[0] != str(name).partition("/")[0]:
            for setting in ("api_key", "api_key_file"):
                if self._existing.read_value("model", setting):
                    self._changes.set_value(_SECTION, setting, "")

    def _forget_address(self) -> None:
        """Remove the address of an earlier model."""
        if self._existing.read_value("model", "api_base"):
            self._changes.set_value(_SECTION, "api_base", "")

    def _settings(self, draft: _Draft, model: str) -> Settings:
        """Build the settings as they would be, for a trial."""
        settings, provider = self._existing.settings.without_secrets(()), draft.option.name
        current_key = settings.model.api_key if settings.model.provider == provider else None
        values = {
            "name": f"{provider}/{model}",
            "api_base": draft.address or None,
            "api_key": SecretStr(draft.key) if draft.key else current_key,
        }
        return settings.model_copy(update={"model": settings.model.model_copy(update=values)})


@dataclass(slots=True)
class _Draft:
    """The answers about a provider so far.

    Attributes:
        address: empty for the usual one.
        key: the typed key; empty if there is none, or if the old one stays.
        is_tried: the person agreed to a trial and did not stop it.
        listed: the models that it lists; empty if unknown.
        name: the chosen model, `provider/model`; empty before that.
    """

    option: ProviderOption
    address: str = ""
    key: str = ""
    is_tried: bool = False
    listed: Sequence[ListedModel] = ()
    name: str = ""
