"""What the doctor finds of the trace page: who could make tokens, and whether they cross a network readably."""

from __future__ import annotations

from bubbot.hosts import is_this_machine
from bubbot.ports.checks import Check, Finding, HomeReader, edit_command

KEY_FILE = "trace.key"
"""The file of the home with the key of the tokens."""


async def check_trace(home: HomeReader) -> list[Finding]:
    """Report where the page is served, if the running bot serves it."""
    settings = home.settings
    if settings is None or settings.port is None:
        return []
    findings = []
    try:
        mode = (home.home / KEY_FILE).stat().st_mode
    except OSError:
        mode = 0  # the next start makes it
    if mode & 0o077:
        cause = (
            f"{home.home / KEY_FILE} can be read by others, who could make tokens for the trace page, so it is not served. "
            "The command ends all tokens; start the bot again, and give new ones."
        )
        findings.append(Finding("trace.key_readable", "problem", cause, "bubbot trace --end-tokens"))
    if not is_this_machine(settings.host) and not str(settings.url or "").startswith("https:"):
        cause = (
            f"[trace] host is {settings.host}, and url does not begin with https: tokens and tapes cross the network readably. "
            "Put a proxy that speaks https before the page, and set url to its address."
        )
        findings.append(Finding("trace.readable_on_the_way", "warning", cause, edit_command(home.config)))
    if not findings:
        cause = f"The running bot serves the trace page at {settings.address or settings.host} to owners and auditors."
        findings.append(Finding("trace.ok", "ok", cause))
    return findings


CHECKS = (Check("the trace page", check_trace),)
