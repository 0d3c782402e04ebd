"""The system prompt: persona, runtime contract, memory. It changes with the day and the memory version only."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date

DEFAULT_PERSONA = (
    "You are {name}, a helpful assistant in a chat. Answer briefly and plainly, in the language you are asked in."
)

_CONTRACT = """
<runtime_contract>
1. Your text is delivered to the chat as you write it; no tool is needed to answer.
2. The tape keeps everything; you are shown a window of it. Use tape_search to find what was said before.
3. Messages may begin with the time they were written, as [2026-11-21 20:21]; never begin your own like that.
4. When a phase is over, call tape_handoff with a summary and next steps: it opens a new window.
5. Say what you did and cite the entry a tool named; never claim to have done or remembered what no tool did.
6. When there is nothing to say, answer exactly {silent}.
7. When people tell you lasting facts or preferences, save them with memory_save or memory_daily, unasked.
Today is {weekday}, {today}.
</runtime_contract>
"""


@dataclass(frozen=True, slots=True)
class PromptSettings:
    """The owner's choices: the bot's name and its persona (empty: a plain helpful one)."""

    name: str = "bubbot"
    persona: str = ""


def render_prompt(settings: PromptSettings, *, today: date, memory: str, silent_mark: str, short: bool) -> str:
    """Render the system prompt.

    Args:
        settings: the bot's name and persona.
        today: the date in the chat's time zone.
        memory: the memory block; may be empty.
        silent_mark: the answer that means silence.
        short: only the persona and the memory, for small models.
    """
    persona = (settings.persona or DEFAULT_PERSONA.replace("{name}", settings.name)).strip()
    if short:
        return f"{persona}\n\n{memory}".strip()
    contract = _CONTRACT.format(silent=silent_mark, weekday=f"{today:%A}", today=today.isoformat())
    return f"{persona}\n{contract}\n{memory}".strip()
