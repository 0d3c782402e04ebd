"""Approvals as the facts on the access tape define them: open cards, newest decisions, and grants by what they name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from datetime import datetime
from typing import Any, TypeAlias

from bubbot.features.approvals.decision import MatchedGrant
from bubbot.features.approvals.events import CONTINUED, DECIDED, GRANTED, OPENED, REVOKED
from bubbot.ports.channel import Sender
from bubbot.ports.tool import GrantKind, GrantTarget
from bubbot.records import dataclass
from bubbot.tape.entry import JsonObject, TapeEntry
from bubbot.tape.projection import Projection
from bubbot.tape.provenance import Source, source_of
from bubbot.tape.query import parse_moment

APPROVALS_TAPE = "bubbot/access"
GrantKey: TypeAlias = tuple[str, str, str]
"""The name of a tool, the kind of a target, and its value."""


@dataclass(frozen=True, slots=True)
class OpenApproval:
    """A card that waits for an answer.

    Attributes:
        id: what people type.
        entry: its fact on the access tape.
        session: the chat in which it came up.
        tape: the tape of that chat, which holds the calls.
        verdict: `confirm` if its asker answers, `ask` if somebody with the role does.
        tools: the names of the tools of its calls.
        targets: what a grant for each call would name, as kind and value; empty for none.
        scopes: what a yes may cover.
        expires: when it means no.
        asker: the person for whom the turn ran.
        channel: of the chat.
        chat: its id there.
        thread: its thread.
        is_direct: the chat has one person only.
        space: see `Inbound`.
        card: the session of the chat that got the card.
        window: the anchor that opened the window of the chat then.
        digests: those of its calls.
        date: when it was asked.
        provenance: how foreign the words are of which the calls are made.
    """

    id: str
    entry: int
    session: str
    tape: str
    verdict: str
    tools: tuple[str, ...]
    targets: tuple[tuple[str, ...], ...]
    scopes: tuple[str, ...]
    expires: datetime
    asker: Sender
    channel: str
    chat: str
    thread: str
    is_direct: bool
    space: str
    card: str
    window: int
    digests: tuple[str, ...] = ()
    date: str = ""
    provenance: Source = Source.OWN


@dataclass(frozen=True, slots=True)
class ApprovalDecision:
    """An answer to a card.

    Attributes:
        id: of the card.
        entry: its fact.
        opened: the fact of the card.
        is_continued: its turn was queued.
    """

    id: str
    entry: int
    opened: OpenApproval
    is_continued: bool = False


@dataclass(frozen=True, slots=True)
class StandingGrant:
    """What may run without asking again.

    Attributes:
        entry: its fact on the access tape, which names it to people.
        tool: the name of the tool.
        target: what it covers.
        session: the chat in which it counts until its window closes; empty: everywhere and always.
        window: the anchor of that window.
        giver: who gave it, as channel and id.
        date: when.
        approval: the id of the card.
    """

    entry: int
    tool: str
    target: GrantTarget
    session: str = ""
    window: int = 0
    giver: str = ""
    date: str = ""
    approval: str = ""

    @property
    def key(self) -> GrantKey:
        """What it is found by."""
        return self.tool, self.target.kind, self.target.value


@dataclass
class ApprovalState:
    """Open cards, decisions whose turns are not queued yet, and grants.

    A fold changes it in place.
    """

    open: dict[str, OpenApproval] = field(default_factory=dict)
    decided: dict[str, ApprovalDecision] = field(default_factory=dict)
    grants: dict[int, StandingGrant] = field(default_factory=dict)
    by_target: dict[GrantKey, list[int]] = field(default_factory=dict)

    def find_grants(self, tool: str, target: GrantTarget | None) -> Iterator[tuple[StandingGrant, MatchedGrant]]:
        """Yield the grants that cover a call, exact ones first. A folder covers what is below it.

        The number of grants does not matter: each possible key is looked up.
        """
        if target is None:
            return
        for value in _covering_values(target):
            for entry in self.by_target.get((tool, target.kind, value), ()):
                grant = self.grants[entry]
                yield grant, MatchedGrant(entry, grant.target == target)

    def apply(self, entries: Sequence[TapeEntry]) -> ApprovalState:
        """Fold these facts, in the order of the tape."""
        for entry in entries:
            if not entry.erased:
                self._apply(entry)
        return self

    def _apply(self, entry: TapeEntry) -> None:
        data: JsonObject = entry.payload["data"]
        match entry.name:
            case "approval.opened":
                self._drop_expired(parse_moment(entry.date))
                opened = opened_from(entry)
                self.open[opened.id] = opened
            case "approval.decided":
                if (opened_card := self.open.pop(data["id"], None)) is not None:
                    self.decided[data["id"]] = ApprovalDecision(data["id"], entry.id, opened_card)
            case "approval.continued":
                self.decided.pop(data["id"], None)
            case "approval.granted":
                self._add_grant(entry)
            case "approval.revoked":
                self._remove_grant(data["grant"])

    def _drop_expired(self, now: datetime | None) -> None:
        if now is not None:
            for name in [name for name, each in self.open.items() if each.expires <= now]:
                del self.open[name]

    def _add_grant(self, entry: TapeEntry) -> None:
        grant = _grant_from(entry)
        if grant is not None:
            self.grants[entry.id] = grant
            self.by_target.setdefault(grant.key, []).append(entry.id)

    def _remove_grant(self, entry: int) -> None:
        grant = self.grants.pop(entry, None)
        if grant is None:
            return
        self.by_target[grant.key].remove(entry)
        if not self.by_target[grant.key]:
            del self.by_target[grant.key]


def _covering_values(target: GrantTarget) -> Iterator[str]:
    yield target.value
    if target.kind is GrantKind.FOLDER:
        parts = target.value.rstrip("/").split("/")
        for count in range(len(parts) - 1, 0, -1):
            yield "/".join(parts[:count]) or "/"


def covers(grant: GrantTarget, target: GrantTarget) -> bool:
    """Return true if a grant of one target covers a call on the other."""
    return grant.kind is target.kind and grant.value in _covering_values(target)


def opened_from(entry: TapeEntry) -> OpenApproval:
    """Read the fact that a card was asked."""
    data: JsonObject = entry.payload["data"]
    return OpenApproval(
        data["id"],
        entry.id,
        data["session"],
        data["tape"],
        data["verdict"],
        tuple(data["tools"]),
        tuple(tuple(target) for target in data["targets"]),
        tuple(data["scopes"]),
        datetime.fromisoformat(data["expires"]),
        Sender(data["asker"], data["asker_name"], roles=tuple(data["asker_roles"])),
        data["channel"],
        data["chat"],
        data["thread"],
        data["direct"],
        data["space"],
        data["card"],
        data["window"][1],
        tuple(data["digests"]),
        entry.date,
        source_of(entry),
    )


def _grant_from(entry: TapeEntry) -> StandingGrant | None:
    """Read a grant. A kind unknown to this version is ignored: its writer meant something that cannot be checked here."""
    data: JsonObject = entry.payload["data"]
    if data["kind"] not in {kind.value for kind in GrantKind}:
        return None
    target = GrantTarget(GrantKind(data["kind"]), data["value"])
    giver = f"{data['channel']}:{data['by']}"
    window = data.get("window", ("", 0))[1]
    session = data.get("session", "")
    return StandingGrant(entry.id, data["tool"], target, session, window, giver, entry.date, data["approval"])


def _encode(state: ApprovalState) -> JsonObject:
    return {
        "open": [each.entry for each in state.open.values()],
        "decided": [[each.opened.entry, each.entry] for each in state.decided.values()],
        "grants": list(state.grants),
    }


def _decode(state: JsonObject, cited: Sequence[TapeEntry]) -> ApprovalState:
    entries = {entry.id: entry for entry in cited}
    decided = {
        each.id: each
        for opened, decision in state["decided"]
        for each in [ApprovalDecision(entries[decision].payload["data"]["id"], decision, opened_from(entries[opened]))]
    }
    opened = [opened_from(entries[entry]) for entry in state["open"]]
    restored = ApprovalState({each.id: each for each in opened}, decided)
    for entry in state["grants"]:
        restored._add_grant(entries[entry])  # noqa: SLF001 - of the same class
    return restored


def _cited(state: Mapping[str, Any]) -> list[int]:
    return [*state["open"], *(entry for pair in state["decided"] for entry in pair), *state["grants"]]


APPROVALS_PROJECTION = Projection[ApprovalState](
    name="approvals",
    version=1,
    tapes=APPROVALS_TAPE,
    events=(OPENED, DECIDED, CONTINUED, GRANTED, REVOKED),
    initial=ApprovalState,
    apply=ApprovalState.apply,
    encode=_encode,
    decode=_decode,
    cited_ids=_cited,
    interval=500,
    size=lambda state: len(state.open) + len(state.decided) + len(state.grants),
)
"""Open cards, decisions whose turns are not queued yet, and grants."""
