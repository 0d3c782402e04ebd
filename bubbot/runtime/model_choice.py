"""The model that a session was switched to, and the one way to switch it."""

from __future__ import annotations

from msgspec import UNSET, Struct, UnsetType

from bubbot.ports.model import Model
from bubbot.tape.anchor import SESSION_MODEL
from bubbot.tape.entry import Kind, TapeEntry, text_field
from bubbot.tape.events import ModelSwitched
from bubbot.tape.handle import TapeHandle
from bubbot.tape.query import TapeQuery
from bubbot.tape.view import QueryAnswers


def switch_query(tape: str) -> TapeQuery:
    """Return the query for the newest switch of a session."""
    return TapeQuery(tape, kinds=(Kind.EVENT,), names=ModelSwitched.EVENTS, newest=True, limit=1)


class ModelChoiceView(Struct, frozen=True):
    """The model that the session was last switched to; empty without a switch, and if that was taken back."""

    heavy: bool = False

    def queries(self, tape: str) -> tuple[TapeQuery, ...]:
        return (switch_query(tape),)

    def fold(self, answers: QueryAnswers) -> str:
        if not answers[0] or answers[0][0].data.get("accepted") == 0:
            return ""
        return text_field(answers[0][0].data, "model")


async def switch_model(
    tape: TapeHandle,
    before: Model | None,
    after: Model,
    *,
    owner: str = "human",
    weights: str | UnsetType = UNSET,
    accepted: int | UnsetType = UNSET,
) -> TapeEntry | None:
    """Write the switch to the tape. If the new model needs the conversation in another form, open a window, and return its anchor.

    Args:
        before: the model until now; None if it is gone.
        owner: who asked for it, as handoffs name it.
        weights: see `ModelSwitched`, as `accepted`.
    """
    fact = ModelSwitched(after.name, before.name if before else "", weights, accepted)
    await tape.append([fact.to_entry()])
    if before is None or before.traits.short_prompt == after.traits.short_prompt:
        return None
    return await tape.handoff(SESSION_MODEL, {"owner": owner, "model": after.name})
