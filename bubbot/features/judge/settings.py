"""`[judge]` of the settings."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated

from pydantic import AfterValidator, Field

from bubbot.ports.settings import Flag, Label, Number, SettingsSection, matches

LABEL_NAME, LABEL_NAME_FORM = r"[a-z][a-z0-9_.-]{0,63}", "1 to 64 small letters, digits, _, . and -, a letter first"


def _check_reactions(reactions: dict[str, float]) -> dict[str, float]:
    if any(not emoji.strip() for emoji in reactions):
        raise ValueError('a number for each emoji, such as { "👍" = 1 }, and no emoji may be empty')
    return reactions


class JudgeSettings(SettingsSection):
    """`[judge]`: what people's reactions and `,rate` say of answers. No model is ever shown a judgement."""

    name: Annotated[Label, matches(LABEL_NAME, LABEL_NAME_FORM)] = Field(
        default="quality", description="The name of the judgements that reactions and `,rate` are."
    )
    reactions: Annotated[dict[str, Number], AfterValidator(_check_reactions)] = Field(
        default={"👍": 1.0, "👎": -1.0},
        description="The reactions to answers that count as judgements of their person, each with its score; an empty table: none.",
    )
    offer_after_look: Flag = Field(
        default=True,
        description="`bubbot judge show` shows what judges think of an answer only after you have judged it yourself.",
    )


SECTIONS: Mapping[str, type[SettingsSection]] = MappingProxyType({"judge": JudgeSettings})
"""The section of the feature in config.toml."""
