"""What the doctor finds of the traces: whether they are sent, where to and with what in them, and what is missing."""

from __future__ import annotations

from ipaddress import ip_address
from urllib.parse import urlsplit

from bubbot.features.otel.settings import OtelSettings
from bubbot.ports.checks import Check, Finding, HomeReader, edit_command


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
    parts, findings = urlsplit(settings.url), []
    if (
        parts.scheme == "http"
        and not _is_near(parts.hostname or "")
        and (settings.headers or settings.content != "off")
    ):
        cause = (
            f"Traces go to {parts.netloc} without encryption, with the headers and the texts of [otel]: everybody in "
            "between can read them. Use an address that begins with https, or a receiver on this machine."
        )
        findings.append(Finding("otel.unencrypted", "warning", cause, edit_command(home.config)))
    said = {
        "off": "without anything that anybody wrote",
        "redacted": "with messages and results, without secrets and names of people",
        "full": "with everything that was said, and who said it",
    }
    cause = f"Turns are sent as traces to {parts.netloc}, {said[settings.content]}."
    return [*findings, Finding("otel.ok", "ok", cause)]


def _is_near(host: str) -> bool:
    """Return true for this machine."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


OTEL_CHECKS = (Check("the traces", check_otel),)
