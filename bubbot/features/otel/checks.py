"""What the doctor finds of the traces: whether they are sent and taken, where to and with what in them, and what is missing."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import takewhile
from urllib.parse import urlsplit

from bubbot.errors import StoreError, TapeCorrupt
from bubbot.features.otel.facts import OTEL_TAPE, TurnRefused, TurnsExported
from bubbot.features.otel.settings import OtelSettings
from bubbot.hosts import is_this_machine
from bubbot.ports.checks import Check, Finding, HomeReader, edit_command
from bubbot.tape.entry import Kind
from bubbot.tape.fact import Cited
from bubbot.tape.query import TapeQuery

MAX_ANSWERS_READ = 100
"""The newest answers of the receiver that are looked at."""


async def check_otel(home: HomeReader) -> list[Finding]:
    """Report where traces are sent to and what is in them; and what keeps them from being sent, or safe."""
    settings = home.settings
    if not isinstance(settings, OtelSettings) or not settings.url:
        return []
    # Imported here: `bubbot status` loads the checks, and asks none of them.
    from bubbot.features.otel.encoding import format_install_command, otel_is_installed

    if not otel_is_installed():
        cause = (
            "[otel] endpoint is set, but the packages for traces are not installed: nothing is sent. The command installs "
            "them; start the bot again."
        )
        return [Finding("otel.packages_missing", "warning", cause, format_install_command())]
    findings = list[Finding]()
    for url, headers in _addresses(settings):
        parts = urlsplit(url)
        if (
            parts.scheme == "http"
            and not is_this_machine(parts.hostname or "")
            and (headers or settings.content != "off")
        ):
            cause = (
                f"Traces go to {parts.netloc} without encryption, with the headers and the texts of [otel]: everybody in "
                "between can read them. Use an address that begins with https, or a receiver on this machine."
            )
            findings.append(Finding("otel.unencrypted", "warning", cause, edit_command(home.config)))
    said = {
        "off": "without anything that anybody wrote",
        "redacted": "with messages, results and what models were shown, without secrets and names of people",
        "full": "with everything that was said, and who said it",
    }
    cause = f"Turns are sent as traces to {urlsplit(settings.url).netloc}, {said[settings.content]}."
    return [*findings, Finding("otel.ok", "ok", cause)]


async def check_refusals(home: HomeReader) -> list[Finding]:
    """Report that the receiver takes no turn: its newest answers refused all that was sent."""
    settings = home.settings
    if not isinstance(settings, OtelSettings) or not settings.url:
        return []
    sent = TapeQuery(OTEL_TAPE, kinds=(Kind.EVENT,), names=TurnsExported.EVENTS, newest=True, limit=MAX_ANSWERS_READ)
    refusals = TapeQuery(OTEL_TAPE, kinds=(Kind.EVENT,), names=TurnRefused.EVENTS, newest=True, limit=1)
    try:
        async with home.open_tape(OTEL_TAPE) as tape:
            answers, refused = await tape.fetch([sent, refusals])
    except (StoreError, TapeCorrupt):
        return []  # the check of the database reports it
    exported = [cited for entry in answers if (cited := Cited.try_of(TurnsExported, entry))]
    refusal = TurnRefused.try_of(refused[0]) if refused else None
    status = f" ({refusal.status})" if refusal else ""
    lost = list(takewhile(lambda each: each.fact.is_refused, (each for each in exported if each.fact.spans)))
    if not lost:
        return []
    turns = sum(each.fact.turns for each in lost)
    cause = (
        f"The receiver of traces has refused every turn since {lost[-1].date[:16].replace('T', ' ')} UTC{status}: {turns} turns "
        "that are not sent again. Check endpoint and headers of [otel], and the log of the receiver; the finding goes with "
        "the first turn that it takes."
    )
    return [Finding("otel.refused", "warning", cause, edit_command(home.config))]


def _addresses(settings: OtelSettings) -> list[tuple[str, Mapping[str, str]]]:
    """Return the receivers, each with its headers: Phoenix is one of its own if it has another host or port."""
    found: list[tuple[str, Mapping[str, str]]] = [(settings.url, settings.read_headers())]
    url = settings.annotations_url
    if url and urlsplit(url).netloc != urlsplit(settings.url).netloc:
        found.append((url, settings.read_annotations_headers()))
    return found


CHECKS = (Check("the traces", check_otel), Check("the receiver of traces", check_refusals, reads_tapes=True))
