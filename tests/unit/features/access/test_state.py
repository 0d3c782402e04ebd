"""What the state of access keeps of codes and refusals."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from bubbot.features.access.facts import LinkCode, PairingCode
from bubbot.features.access.state import AccessState, LinkState, PairingState, issued_at
from bubbot.tape.entry import timestamp
from bubbot.tape.fact import Cited

EARLIEST = datetime(2026, 11, 21, tzinfo=UTC)


def test_what_is_as_old_as_the_moment_is_kept_and_what_is_older_goes() -> None:
    times = [timestamp(at) for at in (EARLIEST - timedelta(microseconds=1), EARLIEST)]
    state = AccessState(
        codes=tuple(PairingState(Cited(PairingCode("tg", "1", "1", "", "", "", at), 1, at)) for at in times),
        refusals=tuple(("tg", at) for at in times),
        link_codes=tuple(LinkState(Cited(LinkCode("tg", "1", "tg:1", "", "", at), 1, at)) for at in times),
    )
    kept = state.drop_before(EARLIEST)
    assert [issued_at(each.code) for each in kept.codes] == [EARLIEST]
    assert [at for _, at in kept.refusals] == [timestamp(EARLIEST)]
    assert [issued_at(each.code) for each in kept.link_codes] == [EARLIEST]
