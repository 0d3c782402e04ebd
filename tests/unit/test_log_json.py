"""Logs as JSON, and what is remembered of warnings: the same care for secrets as on every other line."""

from __future__ import annotations

import io
import json
import logging
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from bubbot import log
from tests.unit.test_log import LOGGER, SECRET, Terminal, spellings, traces
from tests.unit.test_log import _as_before as _as_before  # noqa: PLC0414 - the fixture

SECRETS = [SECRET, "sk-canary-7f3a91", "123456:AAE_x-y", 'a\\\\"b\\c"', "424242424"]


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    log.setup("debug", stream=stream, secrets=[SECRET], form="json")
    yield stream
    log.setup("debug", stream=io.StringIO())


def told(stream: io.StringIO) -> list[dict[str, Any]]:
    """The objects that were logged; fails where a line is none."""
    return [json.loads(line) for line in stream.getvalue().splitlines()]


class TestForm:
    def test_a_line_is_an_object_with_what_the_call_gave(self, lines: io.StringIO) -> None:
        with log.bind(session="telegram:42", turn="t1"):
            LOGGER.info("It %s.", "works", extra={"action": "turn.start", "count": 3, "ok": True, "of": None, "x": 0.5})
        (found,) = told(lines)
        assert found.pop("time").endswith("Z")
        assert found == {
            "level": "info", "action": "turn.start", "message": "It works.", "session": "telegram:42", "turn": "t1",
            "count": 3, "ok": True, "of": None, "x": 0.5,
        }  # fmt: skip

    def test_a_traceback_is_a_member(self, lines: io.StringIO) -> None:
        try:
            raise ValueError("no")
        except ValueError:
            LOGGER.exception("It failed.")
        assert told(lines)[0]["exception"].endswith("ValueError: no")

    @pytest.mark.parametrize("text", ["", "a\nb", "\x1b[2J", "\u202eabc", "\\", "中文", "a\udcffb", "\U0001f511\u2028"])
    def test_any_text_stays_on_one_line_that_can_be_read(self, lines: io.StringIO, text: str) -> None:
        LOGGER.info("%s", text, extra={"value": text, "things": [text]})
        assert lines.getvalue().removesuffix("\n").isprintable()
        (found,) = told(lines)
        assert (found["message"], found["value"], found["things"]) == (text, text, str([text]))

    def test_a_value_does_not_take_the_place_of_another(self, lines: io.StringIO) -> None:
        LOGGER.info("x", extra={"time": "never", "level": "loud", "exception": "none", "odd": float("nan")})
        (found,) = told(lines)
        assert (found["level"], found["level_"], found["time_"], found["odd"]) == ("info", "loud", "never", "nan")
        assert found["exception_"] == "none"

    @pytest.mark.parametrize(
        ("form", "stream", "begins"),
        [
            ("auto", Terminal(), ""),
            ("auto", io.StringIO(), "time="),
            ("text", io.StringIO(), ""),
            ("keyvalue", Terminal(), "time="),
            ("json", Terminal(), '{"time": '),
        ],
    )
    def test_the_form_is_the_one_that_was_asked_for(self, form: log.LogForm, stream: io.StringIO, begins: str) -> None:
        log.setup("info", stream=stream, form=form)
        LOGGER.info("hello")
        line = stream.getvalue()
        assert line.startswith(begins)
        assert bool(begins) or re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \S+ info ", line)


class TestRedaction:
    @pytest.mark.parametrize("secret", SECRETS)
    def test_of_every_spelling_wherever_it_is(self, secret: str) -> None:
        for name, spelled in spellings(secret).items():
            stream = io.StringIO()
            log.setup("info", stream=stream, secrets=[secret], form="json")
            LOGGER.info(
                "before %s after", spelled, extra={"value": spelled, "all": {"key": [spelled]}, "action": spelled}
            )
            (found,) = told(stream)
            assert log.REDACTED in found["message"], name
            assert not traces(secret, stream.getvalue()), name
            assert not any(traces(secret, str(value)) for value in found.values()), name
            assert log.Redactor([secret])(stream.getvalue()) == stream.getvalue(), name

    @given(st.sampled_from(SECRETS) | st.text(min_size=6, max_size=30), st.text(max_size=8), st.text(max_size=8))
    def test_of_any_secret_and_the_line_stays_json(self, secret: str, before: str, after: str) -> None:
        assume(len(secret) >= 6)
        stream = io.StringIO()
        log.setup("info", stream=stream, secrets=[secret], form="json")
        LOGGER.info("%s", f"{before}{secret}{after}", extra={"value": json.dumps(f"{before}{secret}{after}")})
        LOGGER.info("%s", before, extra={"value": quote(secret, safe="", errors="surrogatepass"), "then": after})
        for line in stream.getvalue().splitlines():
            found = json.loads(line)
            assert secret not in found["message"].replace(log.REDACTED, "")
            assert log.Redactor([secret])(line) == line

    def test_of_a_number(self) -> None:
        stream = io.StringIO()
        log.setup("info", stream=stream, secrets=["424242424"], form="json")
        LOGGER.info("x", extra={"id": 424242424, "name424242424": 1, "count": 42})
        (found,) = told(stream)
        assert (found["id"], found["name[redacted]"], found["count"]) == (log.REDACTED, 1, 42)

    def test_in_a_traceback(self, lines: io.StringIO) -> None:
        try:
            raise ValueError(f"no: {quote(SECRET)}")
        except ValueError:
            LOGGER.exception("key %s", SECRET)
        assert not traces(SECRET, lines.getvalue())
        assert told(lines)[0]["exception"].count(log.REDACTED) >= 1

    def test_a_secret_that_only_two_values_make_together_costs_the_line_its_members(self) -> None:
        stream = io.StringIO()
        log.setup("info", stream=stream, secrets=['one", "second": "two'], form="json")
        LOGGER.info("x", extra={"action": "a.b", "first": "one", "second": "two"})
        (found,) = told(stream)
        assert found["action"] == "a.b"
        assert log.REDACTED in found["message"]
        assert "second" not in found


class TestRemembered:
    def test_nothing_before_the_log_is_set_up(self) -> None:
        assert log.recent_warnings() == log.LogSummary()

    def test_warnings_and_errors_are_and_the_newest_stay(self, lines: io.StringIO) -> None:
        LOGGER.info("fine")
        for number in range(log.MAX_LOGGED_WARNINGS + 5):
            LOGGER.warning("number %d", number, extra={"action": "a.b"})
        LOGGER.error("bad")
        found = log.recent_warnings()
        assert (found.warnings, found.errors, len(found.newest)) == (
            log.MAX_LOGGED_WARNINGS + 5,
            1,
            log.MAX_LOGGED_WARNINGS,
        )
        assert [(one.level, one.action, one.message) for one in found.newest][-2:] == [
            ("warning", "a.b", f"number {log.MAX_LOGGED_WARNINGS + 4}"),
            ("error", "bubbot.test", "bad"),
        ]
        assert found.newest[-1].time.endswith("Z")

    def test_they_hold_no_secrets_no_second_line_and_are_short(self, lines: io.StringIO) -> None:
        for spelled in spellings(SECRET).values():
            LOGGER.warning("a\n%s\x1b\n%s", spelled, "x" * 1000, extra={"action": spelled})
            (*_, one) = log.recent_warnings().newest
            assert not traces(SECRET, one.message + one.action)
            assert one.message.isprintable()
            assert len(one.message) <= log.MAX_WARNING_CHARS

    def test_one_that_cannot_be_formatted_counts_and_is_left_out(self, lines: io.StringIO) -> None:
        root = logging.getLogger()
        root.handlers[:] = [one for one in root.handlers if isinstance(one, log.StderrHandler)]  # pytest's own raises
        LOGGER.warning("%d", "no number")
        assert log.recent_warnings() == log.LogSummary(1, 0, ())

    def test_what_the_level_hides_is_not_remembered(self) -> None:
        log.setup("error", stream=io.StringIO())
        LOGGER.warning("quiet")
        assert log.recent_warnings() == log.LogSummary()
