"""Logs: their form, whom they hear, and that no spelling of a secret gets into them."""

from __future__ import annotations

import base64
import contextvars
import io
import json
import logging
import re
import threading
import warnings
from collections.abc import Iterator
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from bubbot import log

SECRET = 'p@ss "wörd"/\\+%\t🔑1'
LOGGER = logging.getLogger("bubbot.test")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    root = logging.getLogger()
    before = root.level
    yield
    for handler in [handler for handler in root.handlers if isinstance(handler, log.StderrHandler)]:
        root.removeHandler(handler)
    root.setLevel(before)
    for name in ("bubbot", "channels"):
        logging.getLogger(name).setLevel(logging.NOTSET)


@pytest.fixture
def lines() -> io.StringIO:
    stream = io.StringIO()
    log.setup("debug", stream=stream, secrets=[SECRET])
    return stream


class TestForm:
    def test_a_line_has_time_level_action_and_message(self, lines: io.StringIO) -> None:
        LOGGER.info("It %s.", "works", extra={"action": "turn.start", "count": 3})
        line = lines.getvalue()
        assert re.fullmatch(
            r'time=\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z level=info action=turn\.start message="It works\." count=3\n',
            line,
        )

    def test_the_action_is_the_logger_where_none_is_given(self, lines: io.StringIO) -> None:
        LOGGER.info("x")
        assert " action=bubbot.test message=x\n" in lines.getvalue()

    @pytest.mark.parametrize("text", ["", "a b", 'say "hi"', "a=b", "line\nlevel=error", "\x1b[2J", "\u202eabc", "\\"])
    def test_a_value_stays_one_word_on_one_line(self, lines: io.StringIO, text: str) -> None:
        LOGGER.info("x", extra={"value": text})
        line = lines.getvalue().removesuffix("\n")
        assert line.isprintable()
        assert line.rpartition(" value=")[2].startswith('"')
        if "\x1b" not in text:
            assert json.loads(line.partition(" value=")[2]) == text

    def test_what_utf8_cannot_hold_is_written(self) -> None:
        stream = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
        log.setup("info", stream=stream)
        LOGGER.info("a\udcffb")
        stream.seek(0)
        assert '"a\\udcffb"' in stream.read()

    def test_the_traceback_is_in_the_same_line(self, lines: io.StringIO) -> None:
        try:
            raise ValueError("no")
        except ValueError:
            LOGGER.exception("It failed.")
        line = lines.getvalue()
        assert line.count("\n") == 1
        assert json.loads(line.partition(" exception=")[2]).endswith("ValueError: no")

    def test_of_a_short_command_on_a_terminal_is_a_sentence(self) -> None:
        stream = Terminal()
        log.setup("warning", stream=stream, sentences=True)
        logging.getLogger("bubbot.x").warning(
            "setting renamed: %s", "a", extra={"action": "config.renamed", "file": "f"}
        )
        assert stream.getvalue() == "Warning: setting renamed: a (file f)\n"

    def test_of_a_short_command_in_a_pipe_has_its_time_and_action(self) -> None:
        stream = io.StringIO()
        log.setup("warning", stream=stream, sentences=True)
        logging.getLogger("bubbot.x").warning("setting renamed", extra={"action": "config.renamed"})
        assert stream.getvalue().endswith(' level=warning action=config.renamed message="setting renamed"\n')

    def test_of_a_warning_of_python_has_no_place_in_the_source(self) -> None:
        stream = Terminal()
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            log.setup("warning", stream=stream, sentences=True)
            warnings.warn("this  is\nold", DeprecationWarning, stacklevel=1)
        assert stream.getvalue() == "Warning: this is old (DeprecationWarning)\n"

    def test_on_a_terminal_it_is_for_people(self) -> None:
        stream = Terminal()
        log.setup("info", stream=stream)
        with log.bind(session="stdin:default"):
            LOGGER.warning("Hello \x1b[31m.", extra={"action": "x.y"})
        try:
            raise ValueError("no")
        except ValueError:
            LOGGER.exception("It failed.")
        first, second, *trace = stream.getvalue().splitlines()
        assert re.fullmatch(
            r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \S+ warning x\.y: Hello \\x1b\[31m\. session=stdin:default", first
        )
        assert second.endswith("error   bubbot.test: It failed.")
        assert trace[0].startswith("Traceback")
        assert trace[-1] == "ValueError: no"


class TestIds:
    def test_are_added_inside_the_block(self, lines: io.StringIO) -> None:
        with log.bind(session="telegram:42"):
            with log.bind(turn="t1"):
                LOGGER.info("a")
            LOGGER.info("b")
        LOGGER.info("c")
        first, second, third = lines.getvalue().splitlines()
        assert first.endswith(" message=a session=telegram:42 turn=t1")
        assert second.endswith(" message=b session=telegram:42")
        assert third.endswith(" message=c")

    def test_are_taken_back_after_an_error(self, lines: io.StringIO) -> None:
        with pytest.raises(ValueError, match="x"), log.bind(session="s"):
            raise ValueError("x")
        LOGGER.info("c")
        assert "session" not in lines.getvalue()

    def test_belong_to_their_context(self, lines: io.StringIO) -> None:
        with log.bind(session="s"):
            context = contextvars.copy_context()
            thread = threading.Thread(target=LOGGER.info, args=("elsewhere",))
            thread.start()
            thread.join()
        context.run(LOGGER.info, "inside")
        elsewhere, inside = lines.getvalue().splitlines()
        assert elsewhere.endswith("message=elsewhere")
        assert inside.endswith("message=inside session=s")


class TestSetup:
    def test_twice_logs_once(self) -> None:
        first, second = io.StringIO(), io.StringIO()
        log.setup("info", stream=first)
        log.setup("error", stream=second)
        LOGGER.info("quiet")
        LOGGER.error("loud")
        assert first.getvalue() == ""
        assert second.getvalue().count("\n") == 1

    def test_leaves_handlers_of_others(self) -> None:
        other = logging.NullHandler()
        logging.getLogger().addHandler(other)
        log.setup("info", stream=io.StringIO())
        assert other in logging.getLogger().handlers

    def test_is_set_up(self) -> None:
        assert not log.is_configured()
        log.setup("info", stream=io.StringIO())
        assert log.is_configured()

    def test_an_unknown_level(self) -> None:
        with pytest.raises(KeyError):
            log.setup("loud")

    def test_the_stream_is_stderr_as_it_is_now(self, capsys: pytest.CaptureFixture[str]) -> None:
        log.setup("info")
        LOGGER.info("hello")
        assert "message=hello" in capsys.readouterr().err

    def test_libraries_are_quiet_below_warning(self, lines: io.StringIO) -> None:
        loud = logging.getLogger("loud_library")
        loud.setLevel(logging.DEBUG)
        try:
            for logger in (loud, logging.getLogger("asyncio"), logging.getLogger("bubbot_other")):
                logger.info("no")
            assert lines.getvalue() == ""
            loud.warning("yes")
            logging.getLogger("channels.telegram.channel").debug("ours")
        finally:
            loud.setLevel(logging.NOTSET)
        assert [line.rpartition("=")[2] for line in lines.getvalue().splitlines()] == ["yes", "ours"]

    def test_an_error_level_silences_warnings_of_libraries(self) -> None:
        stream = io.StringIO()
        log.setup("error", stream=stream)
        logging.getLogger("library").warning("no")
        assert stream.getvalue() == ""

    def test_a_record_that_cannot_be_formatted(self, lines: io.StringIO, capsys: pytest.CaptureFixture[str]) -> None:
        root = logging.getLogger()
        root.handlers[:] = [
            handler for handler in root.handlers if isinstance(handler, log.StderrHandler)
        ]  # pytest's raise
        LOGGER.info("%d", SECRET)
        assert re.fullmatch(r"level=error action=log\.failed source=test_log\.py:\d+\n", lines.getvalue())
        assert capsys.readouterr() == ("", "")

    def test_a_closed_stream_does_no_harm(self, lines: io.StringIO, capsys: pytest.CaptureFixture[str]) -> None:
        lines.close()
        LOGGER.info("x")
        assert capsys.readouterr() == ("", "")


def spellings(secret: str) -> dict[str, str]:
    raw = secret.encode()
    return {
        "plain": secret,
        "percent": quote(secret, safe=""),
        "percent, some left": quote(secret),
        "percent, lower case": re.sub("%..", lambda match: match[0].lower(), quote(secret, safe="")),
        "percent, twice": quote(quote(secret, safe=""), safe=""),
        "form": quote_plus(secret),
        "base64": base64.b64encode(raw).decode(),
        "base64, for addresses": base64.urlsafe_b64encode(raw).decode().rstrip("="),
        "base64, percent": quote(base64.b64encode(raw).decode(), safe=""),
        "basic, one": base64.b64encode(b"1:" + raw + b"??").decode(),
        "basic, two": base64.b64encode(b"me:x" + raw + b"?").decode(),
        "basic, three": base64.b64encode(b"you:" + raw).decode(),
        "json": json.dumps(secret),
        "json, not ascii": json.dumps(secret, ensure_ascii=False),
        "json, slashes": json.dumps(secret).replace("/", "\\/"),
        "json in json": json.dumps(json.dumps({"key": secret})),
        "repr": repr(secret),
        "repr of bytes": repr(raw),
        "ascii": ascii(secret),
    }


def traces(secret: str, text: str) -> bool:
    """Whether six characters of the secret, or of its base64, are still there."""
    forms = [secret, base64.b64encode(secret.encode()).decode().rstrip("=")[:-1]]
    return any(form[i : i + 6] in text for form in forms for i in range(len(form) - 5))


class TestRedaction:
    @pytest.mark.parametrize("secret", [SECRET, "sk-canary-7f3a91", "123456:AAE_x-y", "aaaaaaaa", 'a\\\\"b\\c"'])
    def test_of_every_spelling(self, secret: str) -> None:
        redact = log.Redactor([secret])
        for name, spelled in spellings(secret).items():
            told = redact(f"before {spelled} after")
            assert log.REDACTED in told, name
            assert spelled.strip("\"'b") not in told, name
            assert not traces(secret, told), name
            assert told.startswith("before "), name
            assert told.endswith(" after"), name

    @given(st.text(min_size=6, max_size=40), st.text(max_size=10), st.text(max_size=10))
    def test_of_any_secret_anywhere(self, secret: str, before: str, after: str) -> None:
        assume(len(secret) >= 6)
        redact = log.Redactor([secret])
        assert secret not in redact(f"{before}{secret}{after}").replace(log.REDACTED, "")
        for spelled in (json.dumps(secret), quote(secret, safe="", errors="surrogatepass")):
            assert log.REDACTED in redact(f"{before}{spelled}{after}")
        for prefix in ("", "1", "22"):
            told = redact(base64.b64encode(f"{prefix}{secret}{after}".encode(errors="surrogatepass")).decode())
            assert log.REDACTED in told

    @given(st.text(alphabet=st.characters(codec="utf-8", exclude_characters="x"), max_size=60))
    def test_leaves_the_rest_alone(self, text: str) -> None:
        assert log.Redactor(["xxxxxx"])(text) == text
        assert log.Redactor([])(text) == text

    def test_in_a_line_wherever_it_is(self, lines: io.StringIO) -> None:
        try:
            try:
                raise KeyError(SECRET)
            except KeyError as error:
                raise ValueError(f"no: {quote(SECRET)}") from error
        except ValueError:
            LOGGER.exception("key %s", SECRET, extra={"action": SECRET, "url": f"https://x/{quote(SECRET, safe='')}"})
        with log.bind(session=SECRET):
            LOGGER.info("x", stack_info=True, extra={"given": {"key": SECRET}})
        told = lines.getvalue()
        assert told.count(log.REDACTED) >= 6
        assert not traces(SECRET, told)
        assert "ValueError" in told

    @pytest.mark.parametrize("form", ["keyvalue", "text"])
    def test_before_a_value_is_quoted(self, form: log.LogForm) -> None:
        """Afterwards the secret would take the backslash along that keeps the next quotation mark from ending the value."""
        secret, stream = 'key"7f3a91\\', io.StringIO()
        log.setup("info", stream=stream, secrets=[secret], form=form)
        LOGGER.info('sent "%s" back', secret, extra={"given": f'"{secret}" and level=error'})
        told = stream.getvalue()
        if form == "keyvalue":
            assert 'message="sent \\"[redacted]\\" back" ' in told
        assert told.endswith(' given="\\"[redacted]\\" and level=error"\n')

    def test_in_libraries_too(self, lines: io.StringIO) -> None:
        logging.getLogger("httpx").warning("POST https://api/bot%s/x", SECRET)
        assert "https://api/bot[redacted]/x" in lines.getvalue()

    def test_on_a_terminal(self) -> None:
        stream = Terminal()
        log.setup("info", stream=stream, secrets=["secret\x1bkey"])
        LOGGER.info("a secret\x1bkey", extra={"key": "secret\x1bkey"})
        assert stream.getvalue().count(log.REDACTED) == 2
        assert "key\n" not in stream.getvalue()

    def test_of_a_secret_with_lines(self) -> None:
        redact = log.Redactor(["-----BEGIN KEY-----\nabcdefgh\n"])
        assert redact("abcdefgh") == log.REDACTED

    def test_of_one_secret_inside_another(self) -> None:
        assert log.Redactor(["secret", "secret-longer"])("secret-longer secret") == "[redacted] [redacted]"

    def test_a_short_secret_tears_no_words_apart(self) -> None:
        assert log.Redactor(["", "a", "short"])("a short day") == "a short day"

    def test_redact_knows_the_secrets_of_the_last_setup(self) -> None:
        assert log.redact(SECRET) == SECRET
        log.setup("info", stream=io.StringIO(), secrets=[SECRET])
        assert log.redact(f"key {SECRET}") == "key [redacted]"

    def test_of_hostile_text_is_quick(self) -> None:
        redact = log.Redactor(["\\" * 30 + "key" + '"' * 30, "%" * 40 + "z", "aaaaaaaaaab"])
        for text in ("\\" * 50_000, "%25" * 5_000, "a" * 50_000, '"' * 50_000, "\\u005c" * 2000):
            assert log.REDACTED not in redact(text)
