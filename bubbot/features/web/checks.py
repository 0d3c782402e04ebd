"""What the doctor finds of the web tools: whether they are on, and what they lack."""

from __future__ import annotations

from bubbot.features.web.settings import WebSettings
from bubbot.ports.checks import Check, Finding, HomeReader, edit_command


async def check_web(home: HomeReader) -> list[Finding]:
    """Report that the web tools are on, with their search engines; and what is missing."""
    settings = home.settings
    if not isinstance(settings, WebSettings) or not settings.enabled:
        return []
    # Imported here: `bubbot status` loads the checks, and asks none of them.
    from bubbot.features.web.reading import format_install_command, list_missing_packages

    findings = []
    engines = settings.list_engines()
    if unusable := [name for name in settings.engines if name in settings.list_unusable()]:
        cause = (
            f"[tools.web] engines names {', '.join(unusable)}, which has no address or key "
            "(searxng_url, brave_key, tavily_key), so it is not asked."
        )
        findings.append(Finding("web.engine_unusable", "warning", cause, edit_command(home.config)))
    if missing := list_missing_packages():
        cause = (
            f"[tools.web] is on, but the packages {', '.join(missing)} are not installed: the model can read texts, "
            "PDFs and images, no pages, and cannot search with ddgs. The command installs them; start the bot again."
        )
        findings.append(Finding("web.packages_missing", "warning", cause, format_install_command()))
    if not findings:
        cause = f"The model can read the web, and searches it with {', '.join(engines)}."
        findings.append(Finding("web.ok", "ok", cause))
    return findings


CHECKS = (Check("the web tools", check_web),)
