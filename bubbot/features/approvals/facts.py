"""The facts about approvals: those of a session's tape, and those of the access tape."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Any, ClassVar, Literal, TypeAlias

from msgspec import UNSET, Struct, UnsetType

from bubbot.ports.channel import Sender
from bubbot.tape.entry import JsonObject
from bubbot.tape.fact import Cited, Fact, PersonalFields
from bubbot.tape.references import EntryId, PersonId, SessionId, TapeEntryId
from bubbot.tool import GrantKind, GrantTarget

Scope: TypeAlias = Literal["once", "chat", "always"]
"""What a yes covers."""
KNOWN_KINDS = frozenset(kind.value for kind in GrantKind)
"""What grants of this version cover."""
Answer: TypeAlias = Literal["approved", "denied"]
"""What people say to a card."""


class CallChecked(Fact, kw_only=True):
    """A call of a model was decided.

    Attributes:
        call: the id of the call.
        tool: the name of its tool.
        digest: of the tool and its arguments.
        verdict: what happens to it.
        effect: what it would do.
        row: the row of the table of decisions.
        columns: the columns that were looked at.
        role: of the person for whom the turn runs.
        place: where the call comes from.
        tainted_by: the entries whose words may have led to it.
        quote: the entry in which its address stood.
        grant: the entry of the grant under which it runs; 0 for what a job was allowed.
        approval: the card that asks for it, or allowed it.
        used_before: an interrupted attempt used the tool, so that it may have happened.
        bits: what the choice of its address or words tells others.
        spent: what the window had told before.
    """

    EVENTS = ("approval.checked",)
    call: str
    tool: str
    digest: str
    verdict: str
    effect: str
    row: str
    columns: tuple[str, ...]
    role: str
    place: str
    tainted_by: tuple[TapeEntryId, ...]
    quote: TapeEntryId | UnsetType = UNSET
    grant: int | UnsetType = UNSET
    approval: str | UnsetType = UNSET
    used_before: bool | UnsetType = UNSET
    bits: float | UnsetType = UNSET
    spent: float | UnsetType = UNSET

    @property
    def told_bits(self) -> float:
        """The bits that the choice of the call told: none if it did not run, or a person allowed it."""
        is_free = self.verdict != "run" or self.grant is not UNSET or self.approval is not UNSET
        return 0.0 if is_free or self.bits is UNSET else self.bits


class StoredCall(Struct, frozen=True):
    """A call that waits for a yes.

    Attributes:
        id: of the call when it runs.
        tool: the name of its tool.
        name: that name as models write it.
        arguments: as JSON.
        digest: of the tool and its arguments.
        details: exactly what would happen.
        state: what the details rest on: the call runs only while it is the same.
        target: what a yes for longer than once would cover; None for nothing.
        site: the registrable domain that a yes opens until the turn ends, for addresses that were shown.
    """

    id: str
    tool: str
    name: str
    arguments: str
    digest: str
    details: str
    state: str
    target: GrantTarget | None
    site: str | UnsetType = UNSET


class ApprovalAsked(Fact):
    """A card asks for calls. It is on the tape of their chat, and is what their turn runs after a yes.

    Attributes:
        id: what people type.
        calls: the calls.
        verdict: `confirm` if the asker answers, `ask` if somebody with the role does.
        why: the ends of the names of the sentences that say why.
        tainted_by: the entries whose words may have led to them.
        scopes: what a yes may cover.
        expires: when it means no, ISO 8601 in UTC.
        asker: the person for whom the turn runs.
        channel: of the chat.
        chat: its id there.
        window: the anchor that opened the window of the chat.
        cut_off: the calls began before an interruption, and nobody knows whether they happened.
    """

    EVENTS = ("approval.asked",)
    PERSONAL: ClassVar[PersonalFields] = MappingProxyType({"asker": ("verdict", "expires")})
    id: str
    calls: tuple[StoredCall, ...]
    verdict: str
    why: tuple[str, ...]
    tainted_by: tuple[TapeEntryId, ...]
    scopes: tuple[str, ...]
    expires: str
    asker: PersonId
    channel: str
    chat: str
    window: EntryId
    cut_off: bool | UnsetType = UNSET

    @classmethod
    def upgrade(cls, data: JsonObject) -> JsonObject:
        """Drop targets of a kind that this version does not know: what they mean cannot be checked here."""
        calls = data.get("calls")
        if not isinstance(calls, (list, tuple)) or all(_is_known(call) for call in calls):
            return data
        return {**data, "calls": [call if _is_known(call) else {**call, "target": None} for call in calls]}

    @property
    def is_cut_off(self) -> bool:
        """True if it is not known whether the calls happened."""
        return self.cut_off is True

    @property
    def site(self) -> str:
        """The one domain that a yes opens; empty without one, and if there are several."""
        sites = {call.site or "" for call in self.calls}
        return sites.pop() if len(sites) == 1 else ""


def _is_known(call: Any) -> bool:
    target = call.get("target") if isinstance(call, Mapping) else None
    kind = target.get("kind") if isinstance(target, Mapping) else None
    return not isinstance(kind, str) or kind in KNOWN_KINDS


class ApprovalOpened(Fact):
    """A card was asked. It is on the access tape, so that cards are found without the tapes of their chats.

    Attributes:
        id: what people type.
        session: the chat in which it came up.
        tape: the tape of that chat, which holds the calls.
        verdict: `confirm` if its asker answers, `ask` if somebody with the role does.
        tools: the names of the tools of its calls.
        targets: what a grant for each call would name, as kind and value; empty for none.
        scopes: what a yes may cover.
        expires: when it means no, ISO 8601 in UTC.
        channel: of the chat.
        chat: its id there.
        thread: its thread.
        direct: the chat has one person only.
        space: see `Inbound`.
        asker: the person for whom the turn ran.
        asker_name: the shown name.
        asker_roles: the roles that the platform reported.
        card: the session of the chat that got the card.
        window: the anchor that opened the window of the chat then.
        digests: those of its calls.
        agent: the agent that goes on after the answer; empty for the bot itself among others; absent if it is alone.
        agent_title: its name for people, if several live in the chat.
        command: what the chat runs after the answer to a question of a feature; absent for calls of a model.
    """

    EVENTS = ("approval.opened",)
    PERSONAL: ClassVar[PersonalFields] = MappingProxyType({"asker": ("verdict", "tools", "expires", "asker_name")})
    id: str
    session: SessionId
    tape: str
    verdict: str
    tools: tuple[str, ...]
    targets: tuple[tuple[str, ...], ...]
    scopes: tuple[str, ...]
    expires: str
    channel: str
    chat: str
    thread: str
    direct: bool
    space: str
    asker: PersonId
    asker_name: str
    asker_roles: tuple[str, ...]
    card: SessionId
    window: TapeEntryId
    digests: tuple[str, ...]
    agent: str | UnsetType = UNSET
    agent_title: str | UnsetType = UNSET
    command: str | UnsetType = UNSET

    @property
    def subject(self) -> str:
        """The card."""
        return self.id

    @property
    def agents(self) -> tuple[str, ...]:
        """The agent that goes on after the answer, as an inbound names it."""
        return () if isinstance(self.agent, UnsetType) else (self.agent,)

    @property
    def ends_at(self) -> datetime:
        """When it means no."""
        return datetime.fromisoformat(self.expires)

    @property
    def sender(self) -> Sender:
        """The person for whom the turn ran."""
        return Sender(self.asker, self.asker_name, roles=self.asker_roles)

    @property
    def account(self) -> str:
        """That person as channel and id."""
        return f"{self.channel}:{self.asker}"


class ApprovalDecided(Fact):
    """A card was answered.

    Attributes:
        id: of the card.
        session: the chat in which it came up.
        verdict: `approved` or `denied`.
        scope: what a yes covers; empty for a no.
        reason: why not.
        by: who answered.
        by_name: the shown name, which proves nothing.
        channel: the channel of the answer.
        surface: `button`, `command`, `shell` or `release`.
    """

    EVENTS = ("approval.decided",)
    PERSONAL: ClassVar[PersonalFields] = MappingProxyType({"by": ("verdict", "scope", "reason", "by_name", "surface")})
    id: str
    session: SessionId
    verdict: str
    scope: str
    reason: str
    by: PersonId
    by_name: str
    channel: str
    surface: str

    @property
    def subject(self) -> str:
        """The card."""
        return self.id

    @property
    def person(self) -> str:
        """Who answered, for people."""
        return self.by_name or self.by


class ApprovalContinued(Fact):
    """The turn of an answer was queued.

    Attributes:
        id: of the card.
    """

    EVENTS = ("approval.continued",)
    id: str


class AnswerRejected(Fact):
    """An answer does not count.

    Attributes:
        id: of the card; of a job that had no grant the id of its firing.
        reason: why.
        by: who answered.
        channel: the channel of the answer.
        session: the chat in which the card came up.
    """

    EVENTS = ("approval.rejected",)
    PERSONAL: ClassVar[PersonalFields] = MappingProxyType({"by": ("reason",)})
    id: str
    reason: str
    by: PersonId
    channel: str
    session: SessionId


class ToolGranted(Fact, kw_only=True):
    """Something may run without asking again.

    Attributes:
        tool: the name of the tool.
        kind: of what it covers; one that this version does not know covers nothing here.
        value: what it covers.
        session: the chat in which it counts until its window closes; left out: everywhere and always.
        window: the anchor of that window.
        approval: the card.
        by: who gave it.
        channel: the channel of the answer.
    """

    EVENTS = ("approval.granted",)
    PERSONAL: ClassVar[PersonalFields] = MappingProxyType({"by": ("tool", "kind")})
    tool: str
    kind: str
    value: str
    session: SessionId | UnsetType = UNSET
    window: TapeEntryId | UnsetType = UNSET
    approval: str
    by: PersonId
    channel: str

    @property
    def subject(self) -> tuple[str, ...]:
        """The card, and what of it is granted: two cards may grant the same, and each is taken back for itself."""
        return self.approval, self.tool, self.kind, self.value

    @property
    def anchor(self) -> int:
        """The anchor of the window in which it counts; 0 for none."""
        return 0 if isinstance(self.window, UnsetType) else self.window[1]

    @property
    def target(self) -> GrantTarget:
        """What it covers."""
        return GrantTarget(GrantKind(self.kind), self.value)

    @property
    def giver(self) -> str:
        """Who gave it, as channel and id."""
        return f"{self.channel}:{self.by}"


class GrantRevoked(Fact):
    """A grant was taken back.

    Attributes:
        grant: its entry.
        by: who took it back.
        channel: the channel where that was.
        because: the tool that was about to change what it covers.
    """

    EVENTS = ("approval.revoked",)
    PERSONAL: ClassVar[PersonalFields] = MappingProxyType({"by": ("because",)})
    grant: EntryId
    by: PersonId
    channel: str
    because: str | UnsetType = UNSET


Card: TypeAlias = Cited[ApprovalOpened]
"""A card, with its place on the access tape."""
Grant: TypeAlias = Cited[ToolGranted]
"""A grant; the id of its entry names it to people."""

FACTS: tuple[type[Fact], ...] = (
    CallChecked,
    ApprovalAsked,
    ApprovalOpened,
    ApprovalDecided,
    ApprovalContinued,
    AnswerRejected,
    ToolGranted,
    GrantRevoked,
)
SESSION_EVENTS = (
    *ApprovalOpened.EVENTS,
    *ApprovalDecided.EVENTS,
    *AnswerRejected.EVENTS,
    *ToolGranted.EVENTS,
)
"""Facts on the access tape about one chat, which an erasure of that chat reaches."""
