"""`[budget]` of the settings: limits on spending, by scope, and on how fast people may write."""

import json
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field, ValidationError

from bubbot.formatting import did_you_mean
from bubbot.ports.settings import (
    Label,
    Names,
    Number,
    OptionalWhole,
    SettingsSection,
    blank_to_none,
    describe_expected,
    quote_value,
    refuse_bool,
)

OptionalNumber = Annotated[float | None, BeforeValidator(refuse_bool), BeforeValidator(blank_to_none)]


class LimitSettings(SettingsSection):
    """The keys of `[budget.<scope>.<name>]`."""

    day: OptionalNumber = Field(default=None, ge=0, description="Money in a day.", examples=[5.0])
    month: OptionalNumber = Field(default=None, ge=0, description="Money in a month.", examples=[60.0])
    tokens_day: OptionalWhole = Field(
        default=None, ge=0, description="Tokens in a day, in and out.", examples=[2_000_000]
    )
    tokens_month: OptionalWhole = Field(
        default=None, ge=0, description="Tokens in a month, in and out.", examples=[40_000_000]
    )


class PersonLimitSettings(LimitSettings):
    """The keys of `[budget.users.<name>]` and `[budget.chats.<name>]`."""

    per_minute: OptionalWhole = Field(
        default=None,
        ge=1,
        description="Messages in any minute that ask a model; one that would wait for more than a minute is refused.",
        examples=[6],
    )
    per_hour: OptionalWhole = Field(
        default=None, ge=1, description="Messages in any hour that ask a model.", examples=[60]
    )


class ModelLimitSettings(LimitSettings):
    """The keys of `[budget.models.<name>]`."""

    input_price: OptionalNumber = Field(
        default=None,
        ge=0,
        description="Price of a million input tokens; default: litellm's price list.",
        examples=[2.5],
    )
    output_price: OptionalNumber = Field(
        default=None, ge=0, description="Price of a million output tokens.", examples=[10.0]
    )
    cached_price: OptionalNumber = Field(
        default=None,
        ge=0,
        description="Price of a million cached input tokens; default: `input_price`.",
        examples=[1.25],
    )


def _tables_validator(kind: type[LimitSettings], section: str, example: str) -> Callable[[object], object]:
    """Build a validator of tables by name whose error names the table and the wrong key."""

    def check(value: object) -> object:
        if isinstance(value, str) and value.strip().startswith("{"):  # from the environment
            try:
                value = json.loads(value)
            except (ValueError, RecursionError):
                value = ""
        form = f"tables such as [budget.{section}.{example}]"
        if not isinstance(value, Mapping) or not all(isinstance(table, Mapping | kind) for table in value.values()):
            raise ValueError(form)
        for name, table in value.items():
            _check_table(kind, section, name, table, form)
        return value

    return check


def _check_table(kind: type[LimitSettings], section: str, name: str, table: Any, form: str) -> None:
    if section in ("users", "chats") and name != "each" and not all(str(name).partition(":")):
        raise ValueError(f"{form}: {name!r} has no channel before its id, as in {'telegram:42'!r}")
    try:
        kind.model_validate(table)
    except ValidationError as error:
        item = error.errors()[0]
        key = str(item["loc"][0])
        if item["type"] == "extra_forbidden":
            there = f": there are {', '.join(kind.model_fields)}"
            hint = did_you_mean(key, kind.model_fields, before="; ", otherwise=there)
            raise ValueError(f"{form}: {key} of {name!r} is not a setting{hint}") from None
        expected = describe_expected(item, kind.model_fields[key])
        raise ValueError(f"{form}: {key} of {name!r} is {quote_value(table[key])}, but must be {expected}") from None


_Limits = Annotated[
    dict[Label, LimitSettings], BeforeValidator(_tables_validator(LimitSettings, "channels", "telegram"))
]
_Jobs = Annotated[dict[Label, LimitSettings], BeforeValidator(_tables_validator(LimitSettings, "jobs", "each"))]
_Chats = Annotated[
    dict[Label, PersonLimitSettings],
    BeforeValidator(_tables_validator(PersonLimitSettings, "chats", '"telegram:-1001"')),
]
_Users = Annotated[
    dict[Label, PersonLimitSettings], BeforeValidator(_tables_validator(PersonLimitSettings, "users", '"telegram:42"'))
]
_Models = Annotated[
    dict[Label, ModelLimitSettings], BeforeValidator(_tables_validator(ModelLimitSettings, "models", '"openai/gpt-4o"'))
]


class BudgetSettings(LimitSettings):
    """`[budget]`: limits of the whole bot, and tables for single channels, chats, people, jobs and models.

    A day and a month are those of `[bot] timezone`. Nothing is limited where nothing is set.
    """

    renamed_keys: ClassVar[Mapping[str, str]] = MappingProxyType(
        {"dollar": "usd_rate", "cheaper": "fallback_models", "answer_tokens": "reserved_output_tokens"}
    )
    named_tables: ClassVar[Mapping[str, type[SettingsSection]]] = MappingProxyType(
        {
            "channels.<name>": LimitSettings,
            "chats.<name>": PersonLimitSettings,
            "users.<name>": PersonLimitSettings,
            "jobs.<name>": LimitSettings,
            "models.<name>": ModelLimitSettings,
        }
    )

    currency: Label = Field(default="USD", description="The currency of all amounts here.")
    usd_rate: OptionalNumber = Field(
        default=None,
        gt=0,
        description="The value of one US dollar in that currency; providers' prices are in dollars.",
        examples=[1.0],
    )
    warn_at: Number = Field(
        default=0.8, gt=0, le=1, description="The share of a budget at which the owner is told, once."
    )
    reserved_output_tokens: OptionalWhole = Field(
        default=None,
        ge=1,
        le=10_000_000,
        description="Tokens reserved for an answer before the call; default: `[model] max_tokens`, otherwise what the model "
        "can write, at most 4096.",
        examples=[4096],
    )
    fallback_models: Names = Field(
        default=[], description="Models to use, in this order, if the budget of the session's model is used up."
    )
    channels: _Limits = Field(default={}, description="Limits of channels by name; `each` for all others.")
    chats: _Chats = Field(default={}, description="Limits of chats, `channel:chat`; `each` for all others.")
    users: _Users = Field(default={}, description="Limits of people, `channel:id`; `each` for all others.")
    jobs: _Jobs = Field(default={}, description="Limits of scheduled jobs by id; `each` for all others.")
    models: _Models = Field(default={}, description="Limits and prices of models by name; `each` for all others.")


SECTIONS: Mapping[str, type[SettingsSection]] = MappingProxyType({"budget": BudgetSettings})
"""The section of the feature in config.toml."""
