"""The system prompt: persona, runtime contract, sections of features. It changes with the day and the memory version."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

from msgspec import Struct

from bubbot.texts import SILENT_MARK

DEFAULT_PERSONA = (
    "You are {name}, a helpful assistant in a chat. Answer briefly and plainly, in the language you are asked in."
)
CONTRACT_RULES = (
    "Your text is delivered to the chat as you write it; no tool is needed to answer.",
    "Write formulas as plain text, such as c = √(a² + b²); no chat draws LaTeX.",
    "The tape keeps everything; you are shown a window of it.",
    "Messages may begin with the time they were written, as [2026-11-21 20:21]; never begin your own like that.",
    "Say what you did and cite the entry a tool named; never claim to have done or remembered what no tool did.",
    f"When there is nothing to say, answer exactly {SILENT_MARK}.",
)
"""The rules for every model; features add rules about their tools."""


class PromptSettings(Struct, frozen=True):
    """The owner's choices: the bot's name and persona (empty: the default one)."""

    name: str = "bubbot"
    persona: str = ""


def render_prompt(
    settings: PromptSettings, *, today: date, sections: Sequence[str] = (), rules: Sequence[str] = (), short: bool
) -> str:
    """Render the system prompt.

    Args:
        today: the date in the chat's time zone.
        sections: texts that follow the contract, none of them empty.
        rules: further rules of the contract.
        short: without the contract, for small models.
    """
    persona = (settings.persona or DEFAULT_PERSONA.replace("{name}", settings.name)).strip()
    contract = "" if short else _render_contract([*CONTRACT_RULES, *rules], today)
    return "\n\n".join(part for part in (persona, contract, *sections) if part)


def _render_contract(rules: Sequence[str], today: date) -> str:
    lines = [f"{number}. {rule}" for number, rule in enumerate(rules, 1)]
    return "\n".join(
        ["<runtime_contract>", *lines, f"Today is {today:%A}, {today.isoformat()}.", "</runtime_contract>"]
    )
