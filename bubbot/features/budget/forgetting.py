"""What stays on the budget tape if a person is forgotten: what their calls cost."""

from __future__ import annotations

from collections.abc import Sequence, Set

from msgspec import UNSET
from msgspec.structs import replace

from bubbot.ports.forgetting import ForgottenPerson, Restatement
from bubbot.ports.usage import BUDGET_TAPE, CallSettled
from bubbot.tape.entry import TapeEntry


def restate_costs(_tape: str, entries: Sequence[TapeEntry], person: ForgottenPerson, erased: Set[int]) -> Restatement:
    """Count each erased call again, without its person and direct chat; the chat of a group stays.

    The turn is a random id that names nothing any more; it keeps the number of answers.
    """
    settled = [CallSettled.of(entry) for entry in entries if entry.id in erased and entry.name in CallSettled.EVENTS]
    added = [
        replace(
            call,
            session=f"{call.session.partition(':')[0]}:" if person.has_chat(call.session) else call.session,
            user="",
            job=UNSET,
            error=UNSET,
            reserved=UNSET,
        ).to_entry()
        for call in settled
    ]
    return Restatement(added=tuple(added))


FORGETTING = {BUDGET_TAPE: restate_costs}
