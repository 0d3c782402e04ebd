"""What the state of access keeps of codes and refusals."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from bubbot.features.access.state import AccessState, LinkCode, PairingCode

EARLIEST = datetime(2026, 11, 21, tzinfo=UTC)


def test_what_is_as_old_as_the_moment_is_kept_and_what_is_older_goes() -> None:
    times = (EARLIEST - timedelta(microseconds=1), EARLIEST)
    state = AccessState(
        codes=tuple(PairingCode(1, "tg", "1", "1", "", b"", b"", at, at) for at in times),
        refusals=tuple(("tg", at) for at in times),
        link_codes=tuple(LinkCode(1, ("tg", "1"), "tg:1", b"", b"", at, at) for at in times),
    )
    kept = state.drop_before(EARLIEST)
    assert [code.issued for code in kept.codes] == [EARLIEST]
    assert [at for _, at in kept.refusals] == [EARLIEST]
    assert [code.issued for code in kept.link_codes] == [EARLIEST]
