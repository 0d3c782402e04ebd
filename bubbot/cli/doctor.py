"""`bubbot doctor`: what is wrong here, why, and the command that mends it."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict

from bubbot import __version__, log
from bubbot.cli.output import escape_json, is_unicode, show
from bubbot.home import Home
from bubbot.ops.doctor.checkup import CheckupReport, examine
from bubbot.settings.environment import default_home, environment_secrets
from bubbot.wiring.app import new_id, now

HEALTHY, ILL = 0, 1


def configure(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.description = (
        "Looks at the home, the settings and secrets, the database and its backups, the disk, the clock, the model, the "
        "plugins and the service, asks the platforms of channels with a token who the bot is there, changes nothing, and "
        "tells what is wrong with one command that mends it. Works beside a running bot. The exit code is 1 where a "
        "problem is found; a warning does not count."
    )
    parser.epilog = "example: bubbot doctor --deep"
    parser.add_argument("--deep", action="store_true", help="also check every hash in the database")
    parser.add_argument(
        "--offline", action="store_true", help="ask no platform; without it they have 5 seconds to answer, all at once"
    )
    parser.add_argument("--json", action="store_true", help="print everything found as one JSON object")


def run(args: argparse.Namespace) -> int:
    """Prints the findings; 1 where one of them is a problem."""
    home = Home(getattr(args, "home", None) or default_home())
    log.setup("error", secrets=environment_secrets())  # what libraries have to say is said in findings
    config = getattr(args, "config", None)
    found = examine(home, config, now=now(), deep=args.deep, online=not args.offline, new_id=new_id)
    log.setup("warning", secrets=(*found.secrets, *environment_secrets()))
    if args.json:
        show(log.redact(escape_json(_as_json(found, home))))
    else:
        show(log.redact(_as_text(found)))
    return ILL if found.problems else HEALTHY


def _as_json(found: CheckupReport, home: Home) -> str:
    data = {
        "version": __version__,
        "home": str(home.path),
        "problems": found.problems,
        "findings": [asdict(one) for one in found.findings],
    }
    return json.dumps(data, ensure_ascii=not is_unicode())


def _as_text(found: CheckupReport) -> str:
    lines = []
    for one in found.findings:
        lines.append(f"{one.level:<8} {one.id}: {log.printable(one.cause)}")
        if one.fix:
            lines.append(f"{'':<8} -> {log.printable(one.fix)}")
    warnings = sum(one.level == "warning" for one in found.findings)
    lines.append(f"{_counted(found.problems, 'problem')}, {_counted(warnings, 'warning')}.")
    return "\n".join(lines)


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"
