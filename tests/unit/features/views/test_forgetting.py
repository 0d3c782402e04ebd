"""What stays on the tape of views if a person is forgotten."""

from __future__ import annotations

from dataclasses import replace

from bubbot.features.views.facts import VIEWS_TAPE, ChatView
from bubbot.features.views.forgetting import restate_views
from bubbot.ports.forgetting import ForgottenPerson
from bubbot.tape.entry import TapeEntry

ANN = ForgottenPerson(accounts=(("tg", "1"),), chats=("tg:1",))


def stored(*facts: tuple[str, ChatView]) -> list[TapeEntry]:
    return [replace(fact.to_entry(event), id=place) for place, (event, fact) in enumerate(facts, 1)]


def view(chat: str, session: str, by: str = "tg:9") -> ChatView:
    return ChatView(chat, session, "newest", "", 10, "", by)


def test_views_of_the_person_go_whole_and_those_that_they_decided_about_others_stay_without_them() -> None:
    entries = stored(
        ("views/added", view("tg:1", "tg:-8")),
        ("views/added", view("tg:-8", "tg:5", by="tg:1")),
        ("views/added", view("tg:-8", "tg:7")),
        ("views/removed", view("tg:-8", "tg:7", by="tg:1")),
        ("views/added", view("tg:5", "tg:7")),
    )
    restated = restate_views(VIEWS_TAPE, entries, ANN, {1, 2, 4})
    assert restated.erased == {3}  # else the view before its removal would hold again
    assert [ChatView.of(entry) for entry in restated.added] == [view("tg:-8", "tg:5", by="")]


def test_an_earlier_view_of_the_person_goes_with_its_removal() -> None:
    entries = stored(("views/added", view("tg:1", "tg:-8")), ("views/removed", view("tg:1", "tg:-8")))
    restated = restate_views(VIEWS_TAPE, entries, ANN, {1, 2})
    assert (restated.erased, restated.added) == (frozenset(), ())
