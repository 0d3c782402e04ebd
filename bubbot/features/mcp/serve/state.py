"""The programs that may read tapes, as the facts on their tape say."""

from __future__ import annotations

from functools import singledispatchmethod
from hmac import compare_digest
from typing import Any, ClassVar

import msgspec

from bubbot.features.mcp.serve.facts import (
    CLIENTS_TAPE,
    FACTS,
    ClientGrant,
    ClientRemoved,
    ClientToken,
    SendAsked,
    SendEnded,
    SendShown,
)
from bubbot.tape.fact import Cited, Current, FactState
from bubbot.tape.projection import checkpoint_model, project_facts


class ClientsState(FactState):
    """What each program may read, and the tokens.

    Attributes:
        grants: those in force, in the order in which they were given.
        tokens: the newest one of each program.
        asked: the messages that programs want to send and that have not ended.
        shown: the cards that ask for them.
    """

    FACTS: ClassVar = FACTS
    grants: Current[ClientGrant] = msgspec.field(default_factory=Current)
    tokens: Current[ClientToken] = msgspec.field(default_factory=Current)
    asked: Current[SendAsked] = msgspec.field(default_factory=Current)
    shown: Current[SendShown] = msgspec.field(default_factory=Current)

    def sessions_of(self, client: str) -> tuple[str, ...]:
        """Return the chats that a program may read."""
        return tuple([each.fact.session for each in self.grants if each.fact.client == client])

    def targets_of(self, client: str) -> tuple[str, ...]:
        """Return the chats to which a program may ask to send."""
        return tuple(
            [each.fact.session for each in self.grants if each.fact.client == client and each.fact.send is True]
        )

    def find_client(self, digest: str) -> str:
        """Return the program with a token of this digest; empty if there is none."""
        found = [each.fact.client for each in self.tokens if compare_digest(each.fact.digest, digest)]
        return found[0] if found else ""

    @property
    def clients(self) -> tuple[str, ...]:
        """The names of all programs."""
        return tuple(sorted({each.fact.client for each in (*self.grants, *self.tokens)}))

    @singledispatchmethod
    def fold(self, fact: Any, cited: Cited[Any], /) -> None:
        """Change the state by one fact."""
        raise NotImplementedError(type(fact).__name__)

    @fold.register
    def _(self, _fact: ClientGrant, cited: Cited[Any], /) -> None:
        self.grants.apply(cited)

    @fold.register
    def _(self, _fact: ClientToken, cited: Cited[Any], /) -> None:
        self.tokens.put(cited)

    @fold.register
    def _(self, fact: ClientRemoved, _cited: Cited[Any], /) -> None:
        self.tokens.drop(fact.client)
        self.grants.drop_if(lambda each: each.fact.client == fact.client)

    @fold.register
    def _(self, _fact: SendAsked, cited: Cited[Any], /) -> None:
        self.asked.put(cited)

    @fold.register
    def _(self, _fact: SendShown, cited: Cited[Any], /) -> None:
        self.shown.put(cited)

    @fold.register
    def _(self, fact: SendEnded, _cited: Cited[Any], /) -> None:
        self.asked.drop(fact.id)
        self.shown.drop(fact.id)


CLIENTS_PROJECTION = project_facts(ClientsState, name="mcp_clients", version=2, tapes=CLIENTS_TAPE, interval=500)

CHECKPOINTS = {CLIENTS_PROJECTION.checkpoint_name: checkpoint_model(ClientsState)}
