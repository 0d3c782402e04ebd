"""`bubbot doctor`: the problems of a home, their causes, and the commands that fix them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated

from msgspec import Struct

from bubbot import __version__, log
from bubbot.app.tapes import new_id, now
from bubbot.arguments.fields import Args
from bubbot.cli.invocation import Invocation
from bubbot.cli.local_command import local_command
from bubbot.cli.output import format_json, is_coloured, show, terminal_columns
from bubbot.formatting import wrap_words
from bubbot.home import Home
from bubbot.ops.doctor.checkup import CheckupReport, run_checks
from bubbot.ports.checks import Finding
from bubbot.settings.environment import default_home, environment_secrets
from bubbot.shell_command import Argument, CommandGroup, json_data

EXIT_HEALTHY, EXIT_PROBLEMS = 0, 1
_COLOURS = {"problem": "1;31", "warning": "33", "ok": "32"}
_LEVEL = re.compile(r"^(?:problem|warning|ok)\b", re.MULTILINE)


class DoctorReport(Struct, frozen=True):
    """What a checkup found.

    Attributes:
        version: that of the program.
        home: the path of the home.
        problems: how many findings are problems.
        findings: all of them, including good ones.
    """

    version: str
    home: str
    problems: int
    findings: tuple[Finding, ...]


class DoctorArgs(Args, frozen=True):
    """The arguments of `bubbot doctor`."""

    all: Annotated[bool, Argument("also list the checks that passed")] = False
    deep: Annotated[bool, Argument("also check every hash in the database")] = False
    offline: Annotated[bool, Argument("ask no provider and no platform; without it each has 5 seconds to answer")] = (
        False
    )


@local_command("doctor", example="doctor --deep", result=DoctorReport)
def examine_home(invocation: Invocation, args: DoctorArgs) -> int:
    """Find out what is wrong with this home, and how to fix it.

    Check the home, the settings and secrets, the database and its backups, the disk, the clock, the model, the plugins and
    the service, and verify the key of the model with its provider and the tokens of channels with their platforms. It
    changes nothing and reports each problem with one command that fixes it. Works while the bot runs. The exit code is 1
    if there is a problem; warnings do not count.
    """
    home = Home(invocation.home or default_home())
    log.setup("error", secrets=environment_secrets())  # findings already cover the warnings of libraries
    report = run_checks(home, invocation.config, now=now(), deep=args.deep, online=not args.offline, new_id=new_id)
    log.setup("warning", secrets=(*report.secrets, *environment_secrets()))
    if invocation.as_json:
        data = DoctorReport(__version__, str(home.path), report.problems, tuple(report.findings))
        show(log.redact(format_json(json_data(data))), wraps=False)
    else:
        show(log.redact(_as_text(report, is_complete=args.all)), paint=_paint if is_coloured() else None, wraps=False)
    return EXIT_PROBLEMS if report.problems else EXIT_HEALTHY


def _as_text(report: CheckupReport, *, is_complete: bool) -> str:
    """Format the verdict, then problems, warnings and passed checks."""
    problems, warnings, passed = (report.of_level(level) for level in ("problem", "warning", "ok"))
    count_passed = f"{_pluralize(len(passed), 'check')} passed"
    faults = f"{_pluralize(len(problems), 'problem')}, {_pluralize(len(warnings), 'warning')}"
    lines = [f"{faults}; {count_passed}." if problems or warnings else f"No problems: {count_passed}."]
    for group in (problems, warnings, *([passed] if is_complete else [])):
        lines += ["", *(line for finding in group for line in _format_finding(finding))] if group else []
    if not is_complete:
        lines += ["", "bubbot doctor --all lists the checks that passed."]
    return "\n".join(lines)


def _format_finding(finding: Finding) -> Iterator[str]:
    line = f"{finding.level:<8} {finding.id}: {log.printable(finding.cause)}"
    yield wrap_words(line, terminal_columns(), " " * 9)
    if finding.fix:
        yield f"{'':<8} fix: {log.printable(finding.fix)}"


def _paint(text: str) -> str:
    """Colour the first word of each finding; the text says the same without colours."""
    return _LEVEL.sub(lambda level: f"\x1b[{_COLOURS[level[0]]}m{level[0]}\x1b[0m", text)


def _pluralize(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


DOCTOR_COMMANDS = CommandGroup("doctor", (examine_home,))
