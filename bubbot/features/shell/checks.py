"""What the doctor finds of the tools that run programs: it runs `true` in the sandbox, as the bot does at its start."""

from __future__ import annotations

import os

from bubbot.features.shell.settings import ShellSettings
from bubbot.ports.checks import Check, Finding, HomeReader, edit_command


async def check_shell(home: HomeReader) -> list[Finding]:
    """Report whether programs can run, and in what."""
    settings = home.settings
    if not isinstance(settings, ShellSettings) or not settings.enabled:
        return []
    # Imported here: `bubbot status` loads the checks, and asks none of them.
    from bubbot.sandbox.sandbox import SandboxUnusable, choose_sandbox

    try:
        sandbox = await choose_sandbox(settings)
    except SandboxUnusable as error:
        cause = f"[tools.shell] is on, but no program can run: {error}. Nothing runs in a weaker sandbox instead."
        return [Finding("shell.unusable", "problem", cause, _find_fix(settings) or edit_command(home.config))]
    network = "with the network" if sandbox.has_network else "without a network"
    findings = [Finding("shell.ok", "ok", f"The model can run programs in the sandbox {sandbox.name}, {network}.")]
    if sandbox.name == "none":
        cause = (
            "[tools.shell] sandbox is none: a program that the model runs may read and change all that the bot may, its "
            "database and its keys included."
        )
        findings = [Finding("shell.no_sandbox", "warning", cause, edit_command(home.config))]
    elif os.geteuid() == 0:
        cause = "The bot runs as root: the limit on the number of processes does not count for programs that it runs. The command makes it a service under a user of its own."
        findings.append(Finding("shell.root", "warning", cause, "bubbot service install --system"))
    return findings


def _find_fix(settings: ShellSettings) -> str:
    from bubbot.sandbox.sandbox import format_bubblewrap_command, format_install_command, has_landlock_package

    if settings.sandbox in ("auto", "bwrap") and (command := format_bubblewrap_command()):
        return command
    return "" if settings.sandbox == "bwrap" or has_landlock_package() else format_install_command()


CHECKS = (Check("the sandbox of programs", check_shell),)
