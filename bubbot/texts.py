"""The bot's own sentences: what people are told that no model wrote."""

from __future__ import annotations

NO_MODEL = (
    "No model is configured, so I cannot answer in my own words. Every command works (,help lists them). "
    'To give me a model, put [model] name = "provider/model" into config.toml, or install the demonstration model.'
)
STOPPED = "Stopped."
SILENT_MARK = "[SILENT]"
OUTCOME_UNKNOWN = "outcome unknown: the bot stopped before this call was finished; it may or may not have happened"
GAVE_UP = (
    "I was interrupted twice while answering this, so I stopped trying. "
    "What happened until then is on the tape; send it again, or ,retry, if you want me to."
)
EMPTY_ANSWER = "The model returned an empty answer."


def failed(reason: str) -> str:
    """What people are told when a turn failed."""
    return f"I could not answer this: {reason.rstrip('.')}."


def step_limit(steps: int) -> str:
    """Why a turn ended without an answer."""
    return f"I stopped after {steps} steps without an answer. ,retry lets me go on; [model] max_steps raises the limit."


def repeated_call(name: str) -> str:
    """Why a turn ended."""
    return f"I stopped because the model kept calling {name} with the same arguments."


def taking_up(count: int) -> str:
    """What a person is told who opens a chat in which something is left to answer."""
    return f"Answering what was left open: {count} message{'s' if count > 1 else ''}."


def unparsed(reason: str) -> str:
    """What people are told about something that could not be read."""
    return f"I could not read that: {reason}. It was kept as it came."
