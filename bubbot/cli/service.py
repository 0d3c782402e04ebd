"""`bubbot service`: puts the bot under systemd, removes it again, and shows its state."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from msgspec import Struct

from bubbot.arguments.fields import Args
from bubbot.cli.invocation import Invocation, usage_error
from bubbot.cli.local_command import local_command
from bubbot.cli.output import show, show_record
from bubbot.errors import HomeLocked
from bubbot.home import Home
from bubbot.log import printable
from bubbot.ops.doctor.home import check_lock
from bubbot.ops.service.install import (
    MANUAL_START_HINT,
    UNIT,
    InstallPlan,
    install_service,
    plan_installation,
    plan_removal,
    remove_service,
)
from bubbot.ops.service.render import SYSTEM_HOME
from bubbot.ops.service.systemctl import find_manager_failure, read_properties
from bubbot.ports.checks import Finding
from bubbot.settings.environment import configured_home, default_home, variables_missing_in_service
from bubbot.shell_command import Argument, CommandGroup

EXIT_RUNNING, EXIT_NOT_RUNNING = 0, 1
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


class ServiceStatus(Struct, frozen=True):
    """The state of the service.

    Attributes:
        running: systemd runs it.
        manager: systemd manages services here.
        installed: there is a unit.
        properties: the properties of the unit, by the names of systemd; empty if there is none.
        home: the path of the home.
        report: what the bot reports of itself to systemd; empty if nothing.
        findings: what holds the home.
    """

    running: bool
    manager: bool
    installed: bool
    properties: Mapping[str, str]
    home: str
    report: str
    findings: tuple[Finding, ...]


class ServiceArgs(Args, frozen=True):
    """Whose service it is."""

    user: Annotated[bool, Argument("a service of this user (default unless root)")] = False
    system: Annotated[bool, Argument("a system service (default for root)")] = False


class RemoveServiceArgs(ServiceArgs, frozen=True):
    """The arguments of `bubbot service uninstall`."""

    dry_run: Annotated[bool, Argument("only print what would be written and run")] = False


class InstallServiceArgs(RemoveServiceArgs, frozen=True):
    """The arguments of `bubbot service install`."""

    backups: Annotated[bool, Argument("also make a backup every day")] = False


def _choose_user(args: ServiceArgs) -> bool:
    """Return true for a service of this user. Raise `UsageError` if both options are given."""
    if args.user and args.system:
        raise usage_error("bubbot service", "--user and --system exclude each other: give one of them")
    return args.user or not (args.system or os.geteuid() == 0)


def _find_home(invocation: Invocation, *, user: bool) -> Path:
    return invocation.home or (default_home() if user else configured_home() or SYSTEM_HOME)


@local_command("service install", example="service install --dry-run")
def install(invocation: Invocation, args: InstallServiceArgs) -> int:
    """Write the unit, enable it and start it."""
    user = _choose_user(args)
    home = _find_home(invocation, user=user)
    install_plan = plan_installation(home, invocation.config, user=user, backups=args.backups)
    return _show_installation(install_plan) if args.dry_run else _install(install_plan, Home(home))


@local_command("service uninstall")
def uninstall(args: RemoveServiceArgs) -> int:
    """Stop it and remove the unit; the home stays."""
    install_plan = plan_removal(user=_choose_user(args))
    if args.dry_run:
        return _show_removal(install_plan)
    remove_service(install_plan, _say)
    return 0


@local_command("service status", result=ServiceStatus)
def show_status(invocation: Invocation, args: ServiceArgs) -> int:
    """Show the state of the service, and which process writes to the home."""
    user = _choose_user(args)
    return _show_status(_find_home(invocation, user=user), user=user, as_json=invocation.as_json)


def _install(install_plan: InstallPlan, home: Home) -> int:
    if any(finding.id == "lock.held" for finding in check_lock(home)):
        running = read_properties(UNIT, ["MainPID"], user=install_plan.user) or {}
        if str(home.holder_pid()) != running.get("MainPID"):
            raise HomeLocked(
                f"Process {home.holder_pid() or '?'} writes to the home {home.path}, and the service could not start: "
                "end it first (Ctrl-C, or kill), then install again."
            )
    install_service(install_plan, _say)
    if names := variables_missing_in_service():
        _say(
            f"The service does not see the variables of this shell, and these count here: {', '.join(names)}. "
            "Put what they say into config.toml."
        )
    return 0


def _show_installation(install_plan: InstallPlan) -> int:
    for file in install_plan.files:
        if file.current_text == file.text:
            _say(f"# {file.path} already exists")
            continue
        _say(f"# {file.path}" + ("" if file.current_text is None else " (what is there now would be kept as a copy)"))
        show(file.text, wraps=False)
    for command in install_plan.commands:
        _say(f"# would run: {' '.join(command)}")
    return 0


def _show_removal(install_plan: InstallPlan) -> int:
    for command in install_plan.commands[:-1]:
        _say(f"# would run: {' '.join(command)}")
    for file in install_plan.files:
        _say(f"# would remove {file.path} and keep a copy")
    _say(
        f"# would run: {' '.join(install_plan.commands[-1])}"
        if install_plan.files
        else "# there is no service to remove"
    )
    return 0


def _show_status(home: Path, *, user: bool, as_json: bool) -> int:
    state = read_properties(UNIT, STATUS_PROPERTIES, user=user)
    is_running = state is not None and state.get("ActiveState") == "active"
    is_closed = os.path.lexists(home) and not os.access(home, os.R_OK | os.X_OK)
    findings = () if is_closed else tuple(check_lock(Home(home)))
    if as_json:
        is_installed = state is not None and state.get("LoadState") != "not-found"
        properties = dict(state) if state is not None and is_installed else {}
        report = properties.get("StatusText", "")
        show_record(ServiceStatus(is_running, state is not None, is_installed, properties, str(home), report, findings))
        return EXIT_RUNNING if is_running else EXIT_NOT_RUNNING
    if state is None:
        reason = find_manager_failure(user=user) or "it did not answer"
        _say(f"service: systemd does not manage services here ({reason}). Without it: {MANUAL_START_HINT}")
    elif state.get("LoadState") == "not-found":
        _say(f"service: not installed ({'bubbot service install' if user else 'sudo bubbot service install --system'})")
    else:
        failed = "" if state.get("Result") in ("success", None) else f", last end: {state['Result']}"
        _say(
            f"service: {state.get('ActiveState')} ({state.get('SubState')}), {state.get('UnitFileState')}, "
            f"process {state.get('MainPID')}, {state.get('NRestarts')} restarts{failed}"
        )
        if state.get("StatusText"):
            _say(f"says: {state['StatusText']}")
    if is_closed:
        _say(f"home: {home} is closed to this user; {'the user who owns it' if user else 'root'} is told more.")
    for finding in findings:
        _say(f"home: {home}: {finding.cause}")
    return EXIT_RUNNING if is_running else EXIT_NOT_RUNNING


def _say(sentence: str) -> None:
    show(printable(sentence), flush=True)


SERVICE_COMMANDS = CommandGroup(
    "service",
    (install, uninstall, show_status),
    "Run the bot under systemd: it starts with the machine (or with your session), restarts if it fails, and reports the "
    "state of its channels. The home is never changed.",
    "run the bot under systemd, and show its state",
)
