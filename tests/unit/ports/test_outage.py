"""Outages, as reports of health tell of them."""

from datetime import UTC, datetime

from bubbot.ports.health import Outage


def test_an_outage_is_as_old_as_its_first_failure_and_is_told_once() -> None:
    outage = Outage()
    assert outage.begin("refused", datetime(2026, 1, 1, 12, tzinfo=UTC))
    first = outage.since
    assert not outage.begin("no route", datetime(2026, 1, 1, 13, tzinfo=UTC))
    assert (outage.error, outage.since) == ("no route", first)
    assert outage.end()
    assert not outage.end()
    assert outage.begin("again", datetime(2026, 1, 2, tzinfo=UTC))
    assert outage.since > first
