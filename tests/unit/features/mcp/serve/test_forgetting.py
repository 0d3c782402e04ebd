"""What stays on the tape of programs if a person is forgotten."""

from __future__ import annotations

from dataclasses import replace

from bubbot.features.mcp.serve.facts import CLIENTS_TAPE, ClientGrant, ClientRemoved
from bubbot.features.mcp.serve.forgetting import restate_grants
from bubbot.ports.forgetting import ForgottenPerson
from bubbot.tape.entry import TapeEntry

ANN = ForgottenPerson(accounts=(("tg", "1"),), chats=("tg:1",))
GRANTED, REVOKED = ClientGrant.EVENTS


def stored(*facts: tuple[str, ClientGrant | ClientRemoved]) -> list[TapeEntry]:
    return [replace(fact.to_entry(event), id=place) for place, (event, fact) in enumerate(facts, 1)]


def grant(session: str, by: str = "tg:9", client: str = "editor") -> ClientGrant:
    return ClientGrant(client, session, by)


def test_grants_of_their_chats_go_and_those_that_they_gave_for_others_stay_without_them() -> None:
    entries = stored(
        (GRANTED, grant("tg:1")),
        (GRANTED, grant("tg:5", by="tg:1")),
        (GRANTED, grant("tg:7")),
        (REVOKED, grant("tg:7", by="tg:1")),
        (GRANTED, grant("tg:8")),
    )
    restated = restate_grants(CLIENTS_TAPE, entries, ANN, {1, 2, 4})
    assert restated.erased == {3}  # else the grant before its revocation would hold again
    assert [ClientGrant.of(entry) for entry in restated.added] == [grant("tg:5", by="")]


def test_what_a_removal_took_back_is_not_said_again() -> None:
    entries = stored((GRANTED, grant("tg:5", by="tg:1")), ("mcp/client_removed", ClientRemoved("editor", "terminal")))
    restated = restate_grants(CLIENTS_TAPE, entries, ANN, {1})
    assert (restated.erased, restated.added) == (frozenset(), ())
