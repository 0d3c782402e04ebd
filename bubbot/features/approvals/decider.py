"""The person who answers a card: with a button, with a command, or in a shell."""

from __future__ import annotations

from datetime import datetime

from msgspec import UNSET, Struct

from bubbot.command import TERMINAL, Caller
from bubbot.errors import CommandRefused
from bubbot.features.approvals.facts import Answer, ApprovalDecided, ApprovalOpened, Scope, ToolGranted
from bubbot.ports.channel import APPROVAL_ORIGIN, Inbound, Role
from bubbot.tape.entry import TapeEntry
from bubbot.tape.query import parse_moment


class Decider(Struct, frozen=True):
    """The person who answers.

    Attributes:
        channel: the channel of the answer.
        id: the numeric id there; `terminal` for a shell.
        name: the shown name, which proves nothing.
        role: the role there.
        session: the chat of the answer.
        has_power: an owner in a direct chat or at a shell, who may answer what came up in other chats.
        surface: `button`, `command` or `shell`.
        moment: when it was pressed or typed, which is what counts; None for now.
        card: the platform's id of the message that was pressed.
    """

    channel: str
    id: str
    name: str
    role: Role
    session: str
    has_power: bool
    surface: str
    moment: datetime | None = None
    card: str = ""

    @classmethod
    def of_caller(cls, caller: Caller) -> Decider:
        """Return who answers with a command.

        Raises:
            CommandRefused: nobody typed or pressed it: words of a model or page are no answer.
        """
        turn = caller.turn
        if turn is None:
            return cls(TERMINAL, TERMINAL, "", caller.role, "", has_power=True, surface="shell")
        inbounds = [accepted.inbound for accepted in turn.inbounds]
        people = {inbound.sender.id for inbound in inbounds}
        if not turn.is_typed or not turn.runs_command or turn.sender.bot or len(people) != 1:
            raise CommandRefused("approval_only_people")
        first, person = inbounds[0], turn.sender
        surface, moment = "button" if first.press else "command", parse_moment(first.time)
        return cls(first.channel, person.id, person.name, turn.role, turn.session, caller.has_power, surface, moment)

    @classmethod
    def of_press(cls, inbound: Inbound, role: Role) -> Decider:
        """Return who answers with a button, in this role."""
        has_power = role.at_least(Role.OWNER) and inbound.direct
        moment, person = parse_moment(inbound.time), inbound.sender
        card = inbound.press.message if inbound.press else ""
        return cls(inbound.channel, person.id, person.name, role, inbound.session, has_power, "button", moment, card)

    @property
    def is_shell(self) -> bool:
        """True if the operating system's user answers."""
        return self.surface == "shell"

    def decide(self, card: ApprovalOpened, verdict: Answer, scope: Scope = "once", reason: str = "") -> ApprovalDecided:
        """Make the fact that this person answered a card."""
        covered = scope if verdict == "approved" else ""
        return ApprovalDecided(
            card.id, card.session, verdict, covered, reason, self.id, self.name, self.channel, self.surface
        )

    def grant(self, card: ApprovalOpened, scope: Scope) -> list[TapeEntry]:
        """Make the grants of a yes that covers more than once: one for each thing that the calls act on."""
        named = dict.fromkeys((tool, *target) for tool, target in zip(card.tools, card.targets, strict=True) if target)
        is_local = scope == "chat"
        return [
            ToolGranted(
                tool=tool,
                kind=kind,
                value=value,
                session=card.session if is_local else UNSET,
                window=(card.tape, card.window[1]) if is_local else UNSET,
                approval=card.id,
                by=self.id,
                channel=self.channel,
            ).to_entry(key=f"grant:{card.id}:{number}")
            for number, (tool, kind, value) in enumerate(named)
        ]


def decided_key(number: str) -> str:
    """Return the key of the answer to a card: the first one counts."""
    return f"{APPROVAL_ORIGIN}:{number}"
