"""Events of a running turn that a channel may show."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from msgspec import Struct


class TurnStarted(Struct, frozen=True, forbid_unknown_fields=True):
    """A turn has begun.

    Attributes:
        inbound: the id of its first inbound.
        message: the platform's id of that message.
        is_first_attempt: no earlier turn for these inbounds was interrupted.
    """

    inbound: int = 0
    message: str = ""
    is_first_attempt: bool = False


class TextStreamed(Struct, frozen=True, forbid_unknown_fields=True):
    """A piece of the model's text for people. The pieces of a step since its last `TextDiscarded` add up to its text.

    Attributes:
        quiet: the piece for a client that renders Markdown, changed so that rendering fetches nothing; None in a turn
            without words from anywhere.
    """

    text: str
    quiet: str | None = None


class TextDiscarded(Struct, frozen=True, forbid_unknown_fields=True):
    """All pieces of the step so far were a thought that began without a mark: the text begins after them."""


class ForeignWordsShown(Struct, frozen=True, forbid_unknown_fields=True):
    """The model is about to see words from anywhere: from now on, show no link previews.

    It comes before the text of the step, once in a turn.
    """


class ToolStarted(Struct, frozen=True, forbid_unknown_fields=True):
    """A tool has started; `arguments` are shortened."""

    name: str
    arguments: str


class ToolFinished(Struct, frozen=True, forbid_unknown_fields=True):
    """A tool has finished.

    Attributes:
        ok: it succeeded.
        size: characters of its result.
        spilled: the result was too long, so all of it is stored separately.
        arguments: those of `ToolStarted`, which distinguish concurrent calls.
    """

    name: str
    ok: bool
    size: int
    spilled: bool
    arguments: str = ""


class StepFinished(Struct, frozen=True, forbid_unknown_fields=True):
    """A model call has finished.

    Attributes:
        step: its number.
        calls: the number of following tool calls; 0: the turn ends.
        quiet: the rest of the step's text; see `TextStreamed`.
    """

    step: int
    calls: int
    quiet: str | None = None


class TurnFinished(Struct, frozen=True, forbid_unknown_fields=True):
    """A turn is recorded: `answered`, `silent`, `failed` or `stopped`. Its answer follows by `send`."""

    status: str


Preview: TypeAlias = (
    TurnStarted
    | ForeignWordsShown
    | TextStreamed
    | TextDiscarded
    | ToolStarted
    | ToolFinished
    | StepFinished
    | TurnFinished
)
"""An event of a running turn. It is never a fact: `send` delivers the final text even if these are lost."""
PreviewCallback: TypeAlias = Callable[[str, Preview], None]
"""Receives the session and a preview; it must neither block nor raise."""


def ignore_preview(session: str, event: Preview) -> None:
    """Ignore previews, for channels that show none."""
