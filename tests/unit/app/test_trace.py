"""Who may look at the trace page that a daemon serves, and where it is."""

from __future__ import annotations

import pytest

from bubbot.app.trace import admit_owner, admit_people, pages_address
from bubbot.command import TERMINAL
from bubbot.features.access.audits import AuditorDirectory
from bubbot.features.access.service import AccessService
from bubbot.features.trace.tokens import TraceTokens
from bubbot.ports.access import ListedPeople
from bubbot.ports.channel import Role
from bubbot.settings.sections import TraceSettings
from bubbot.stores.inmemory import InMemoryStore
from bubbot.tape.boundary import OWNER
from bubbot.tape.service import TapeService
from tests.callers import by, run
from tests.doubles import CountingIds, CountingSalt, SteppingClock

TOKENS = TraceTokens(b"k" * 32, lambda: 0.0)
ROLES = {("telegram", "42"): Role.OWNER, ("telegram", "43"): Role.ADMIN, ("telegram", "44"): Role.MEMBER}


async def test_owners_see_all_auditors_what_is_granted_now_and_others_nothing(memory_store: InMemoryStore) -> None:
    tape = TapeService(memory_store, "bubbot/access", now=SteppingClock(), new_id=CountingIds())
    access = AccessService(tape, now=SteppingClock(), random=CountingSalt(), configured={"telegram": ListedPeople()})
    await run(access.grant_audit, by(TERMINAL), "telegram:44", "telegram:7")
    roles = dict(ROLES)
    admit = admit_people(
        TOKENS, lambda channel, number: roles.get((channel, number), Role.STRANGER), AuditorDirectory(tape)
    )

    async def sees(account: str) -> object:
        admission = await admit(TOKENS.issue(account, 60))
        if admission is None:
            return None
        assert admission.viewer.account == account  # what a form writes names it
        return "everything" if admission.viewer.sees_all else admission.viewer.sessions

    assert await sees("telegram:42") == "everything"
    assert await sees("telegram:43") is None  # admins have no power over other chats
    assert await sees("telegram:44") == {"telegram:7"}
    assert await sees("ann") is None
    await run(access.grant_audit, by(TERMINAL), "ann", "telegram:8")
    assert await sees("ann") == {"telegram:8"}
    await run(access.revoke_audit, by(TERMINAL), "ann", "telegram:8")
    assert await sees("ann") is None
    del roles["telegram", "42"]
    assert await sees("telegram:42") is None
    assert await admit("nonsense") is None


async def test_the_token_of_this_process_is_the_owner_alone() -> None:
    admit = admit_owner("secret")
    admission = await admit("secret")
    assert admission is not None
    assert admission.viewer == OWNER
    assert await admit("secreT") is None


@pytest.mark.parametrize(
    ("settings", "address"),
    [
        (TraceSettings(), ""),
        (TraceSettings(port=8766), "http://127.0.0.1:8766"),
        (TraceSettings(port=8766, host="::1"), "http://[::1]:8766"),
        (TraceSettings(port=0), ""),
        (TraceSettings(port=8766, host="0.0.0.0"), ""),
        (TraceSettings(port=0, url="https://bot.example.org/"), "https://bot.example.org"),
        (TraceSettings(url="https://bot.example.org"), ""),
    ],
)
def test_a_link_leads_to_where_people_reach_the_page(settings: TraceSettings, address: str) -> None:
    assert settings.address == address


def test_the_name_in_the_address_is_a_name_of_this_bot_and_its_cookie_needs_https() -> None:
    address = pages_address(TraceSettings(port=1, url="https://bot.example.org", hosts=["other"]))
    assert (list(address.hosts), address.is_https) == (["other", "bot.example.org"], True)
    assert not pages_address(TraceSettings(port=1)).is_https
