"""`bubbot service`: puts the bot under systemd, takes it away again, and shows how it is there."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from bubbot.cli.output import show
from bubbot.errors import HomeLocked
from bubbot.home import Home
from bubbot.log import printable
from bubbot.ops.doctor.home import check_lock
from bubbot.ops.service.install import INSTEAD, UNIT, InstallPlan, apply, plan, removal, take_away
from bubbot.ops.service.render import SYSTEM_HOME
from bubbot.ops.service.systemctl import properties, silent
from bubbot.ops.service.systemctl import run as ask
from bubbot.settings.environment import default_home, left_behind, named_home

RUNNING, NOT_RUNNING = 0, 1
STATUS_PROPERTIES = (
    "LoadState",
    "ActiveState",
    "SubState",
    "UnitFileState",
    "StatusText",
    "MainPID",
    "NRestarts",
    "Result",
)


def configure(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.description = (
        "Runs the bot under systemd: it starts with the machine (or with your session), is started again when it fails, "
        "and tells how its channels are. The home is never touched."
    )
    parser.epilog = "example: bubbot service install --dry-run"
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    install = actions.add_parser("install", help="write the unit, enable it and start it")
    uninstall = actions.add_parser("uninstall", help="stop it and remove the unit; the home stays")
    status = actions.add_parser("status", help="show how the service is, and who writes to the home")
    for action in (install, uninstall, status):
        whose = action.add_mutually_exclusive_group()
        whose.add_argument("--user", action="store_true", help="a service of this user; so where this is not root")
        whose.add_argument("--system", action="store_true", help="a service of the system; so where this is root")
    for action in (install, uninstall):
        action.add_argument("--dry-run", action="store_true", help="only print what would be written and run")
    install.add_argument("--backups", action="store_true", help="also make a backup every day")


def run(args: argparse.Namespace) -> int:
    """Carries out the action."""
    user = args.user or not (args.system or os.geteuid() == 0)
    home = args.home or (default_home() if user else named_home() or SYSTEM_HOME)
    if args.action == "status":
        return _status(home, user=user)
    if args.action == "install":
        made = plan(home, args.config, user=user, backups=args.backups)
        return _dry(made) if args.dry_run else _install(made, Home(home))
    made = removal(user=user)
    if args.dry_run:
        return _dry_removal(made)
    take_away(made, _say)
    return 0


def _install(made: InstallPlan, home: Home) -> int:
    if any(finding.id == "lock.held" for finding in check_lock(home)):
        running = properties(ask, UNIT, ["MainPID"], user=made.user) or {}
        if str(home.holder()) != running.get("MainPID"):
            raise HomeLocked(
                f"Process {home.holder() or '?'} writes to the home {home.path}, and the service could not start: "
                "end it first (Ctrl-C, or kill), then install again."
            )
    apply(made, _say)
    if names := left_behind():
        _say(
            f"The service does not see the variables of this shell, and these count here: {', '.join(names)}. "
            "Put what they say into config.toml."
        )
    return 0


def _dry(made: InstallPlan) -> int:
    for file in made.files:
        if file.there == file.text:
            _say(f"# {file.path} is there already")
            continue
        _say(f"# {file.path}" + ("" if file.there is None else " (what is there now would be kept as a copy)"))
        show(file.text)
    for command in made.commands:
        _say(f"# would run: {' '.join(command)}")
    return 0


def _dry_removal(made: InstallPlan) -> int:
    for command in made.commands[:-1]:
        _say(f"# would run: {' '.join(command)}")
    for file in made.files:
        _say(f"# would remove {file.path} and keep a copy")
    _say(f"# would run: {' '.join(made.commands[-1])}" if made.files else "# there is no service to remove")
    return 0


def _status(home: Path, *, user: bool) -> int:
    found = properties(ask, UNIT, STATUS_PROPERTIES, user=user)
    if found is None:
        why = silent(ask, user=user) or "it did not answer"
        _say(f"service: systemd does not manage services here ({why}). Without it: {INSTEAD}")
    elif found.get("LoadState") == "not-found":
        _say(f"service: not installed ({'bubbot service install' if user else 'sudo bubbot service install --system'})")
    else:
        failed = "" if found.get("Result") in ("success", None) else f", last end: {found['Result']}"
        _say(
            f"service: {found.get('ActiveState')} ({found.get('SubState')}), {found.get('UnitFileState')}, "
            f"process {found.get('MainPID')}, {found.get('NRestarts')} restarts{failed}"
        )
        if found.get("StatusText"):
            _say(f"says: {found['StatusText']}")
    if os.path.lexists(home) and not os.access(home, os.R_OK | os.X_OK):
        _say(f"home: {home} is closed to this user; {'the user who owns it' if user else 'root'} is told more.")
    else:
        for finding in check_lock(Home(home)):
            _say(f"home: {home}: {finding.cause}")
    return RUNNING if found is not None and found.get("ActiveState") == "active" else NOT_RUNNING


def _say(sentence: str) -> None:
    show(printable(sentence), flush=True)
