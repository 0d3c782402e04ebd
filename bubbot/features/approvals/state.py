"""Approvals as the facts on the access tape define them: open cards, newest decisions, and grants by what they name."""

from __future__ import annotations

from collections.abc import Iterator
from functools import singledispatchmethod
from typing import Any, ClassVar, TypeAlias

import msgspec
from msgspec import Struct

from bubbot.features.approvals.decision import MatchedGrant
from bubbot.features.approvals.facts import (
    KNOWN_KINDS,
    ApprovalContinued,
    ApprovalDecided,
    ApprovalOpened,
    Grant,
    GrantRevoked,
    ToolGranted,
)
from bubbot.tape.fact import Cited, Current, FactState
from bubbot.tape.projection import checkpoint_model, project_facts
from bubbot.tape.query import parse_moment
from bubbot.tool import GrantKind, GrantTarget

APPROVALS_TAPE = "bubbot/access"
GrantKey: TypeAlias = tuple[str, str, str]
"""The name of a tool, the kind of a target, and its value."""


class AnsweredCard(Struct, array_like=True, frozen=True):
    """A card with the answer to it."""

    opened: Cited[ApprovalOpened]
    decided: Cited[ApprovalDecided]


class ApprovalState(FactState, dict=True):
    """What holds now.

    Attributes:
        open: the cards that wait for an answer.
        decided: those whose turns are not queued yet.
        grants: what may run without asking.
    """

    FACTS: ClassVar = (ApprovalOpened, ApprovalDecided, ApprovalContinued, ToolGranted, GrantRevoked)
    open: Current[ApprovalOpened] = msgspec.field(default_factory=Current)
    decided: tuple[AnsweredCard, ...] = ()
    grants: Current[ToolGranted] = msgspec.field(default_factory=Current)

    def __post_init__(self) -> None:
        """Index the grants, so that their number does not matter."""
        self.by_target = dict[GrantKey, list[Grant]]()
        self.by_number = dict[int, Grant]()
        for grant in self.grants:
            self._index(grant)

    def find_grants(self, tool: str, target: GrantTarget | None) -> Iterator[tuple[Grant, MatchedGrant]]:
        """Yield the grants that cover a call, exact ones first. A folder covers what is below it.

        The number of grants does not matter: each possible key is looked up.
        """
        if target is None:
            return
        for value in _covering_values(target):
            for grant in self.by_target.get((tool, target.kind, value), ()):
                yield grant, MatchedGrant(grant.id, target.is_exactly(value))

    @singledispatchmethod
    def fold(self, fact: Any, cited: Cited[Any], /) -> None:
        """Change the state by one fact."""
        raise NotImplementedError(type(fact).__name__)

    @fold.register
    def _(self, _fact: ApprovalOpened, cited: Cited[Any], /) -> None:
        now = parse_moment(cited.date)
        self.open.drop_if(lambda card: now is not None and card.fact.ends_at <= now)
        self.open.put(cited)

    @fold.register
    def _(self, fact: ApprovalDecided, cited: Cited[Any], /) -> None:
        if (opened := self.open.drop(fact.id)) is not None:
            self.decided = (*self.decided, AnsweredCard(opened, cited))

    @fold.register
    def _(self, fact: ApprovalContinued, _cited: Cited[Any], /) -> None:
        self.decided = tuple(each for each in self.decided if each.decided.fact.id != fact.id)

    @fold.register
    def _(self, fact: ToolGranted, cited: Cited[Any], /) -> None:
        # A kind unknown to this version is ignored: its writer meant something that cannot be checked here.
        if fact.kind in KNOWN_KINDS:
            if (earlier := self.grants.find(fact.subject)) is not None:
                self._drop(earlier)
            self.grants.put(cited)
            self._index(cited)

    @fold.register
    def _(self, fact: GrantRevoked, _cited: Cited[Any], /) -> None:
        if (grant := self.by_number.get(fact.grant)) is not None:
            self._drop(grant)

    def _drop(self, grant: Grant) -> None:
        self.grants.drop(grant.fact.subject)
        del self.by_number[grant.id]
        key = _key(grant.fact)
        self.by_target[key].remove(grant)
        if not self.by_target[key]:
            del self.by_target[key]

    def _index(self, grant: Grant) -> None:
        self.by_number[grant.id] = grant
        self.by_target.setdefault(_key(grant.fact), []).append(grant)


def _key(grant: ToolGranted) -> GrantKey:
    return grant.tool, grant.kind, grant.value


def _covering_values(target: GrantTarget) -> Iterator[str]:
    yield target.value
    if target.kind is GrantKind.FOLDER:
        parts = target.value.rstrip("/").split("/")
        for count in range(len(parts) - 1, 0, -1):
            yield "/".join(parts[:count]) or "/"


def covers(grant: GrantTarget, target: GrantTarget) -> bool:
    """Return true if a grant of one target covers a call on the other."""
    return grant.kind is target.kind and grant.value in _covering_values(target)


APPROVALS_PROJECTION = project_facts(ApprovalState, name="approvals", version=1, tapes=APPROVALS_TAPE, interval=500)
"""Open cards, decisions whose turns are not queued yet, and grants."""

CHECKPOINTS = {APPROVALS_PROJECTION.checkpoint_name: checkpoint_model(ApprovalState)}
