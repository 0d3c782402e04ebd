"""The commands that run programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from shlex import join
from typing import Annotated, Any

from msgspec import Meta, Struct, structs

from bubbot.arguments.fields import Args
from bubbot.command import Caller, command, make_tools
from bubbot.errors import CommandRefused
from bubbot.features.shell.runner import ProgramEnd
from bubbot.features.shell.service import ProgramResult, ShellJob, ShellService, TooManyJobs
from bubbot.features.shell.settings import ShellSettings
from bubbot.formatting import replace_controls
from bubbot.ports.channel import Role
from bubbot.ports.turn import Turn
from bubbot.sandbox.sandbox import Sandbox, SandboxUnusable
from bubbot.tool import (
    INSIDE,
    READS_STORED,
    CallPlan,
    CommandHelp,
    Effect,
    GrantKind,
    GrantTarget,
    HelpTopic,
    Tool,
    digest_call,
)

MAX_COMMAND_CHARS = 20_000
TIMEOUT_MARGIN_SECONDS = 30.0
"""Time above that of a program, for its sandbox and its end."""
RUNS_PROGRAMS = Effect(in_workspace=True)


class ShellRunArgs(Args, frozen=True):
    """What to run: `argv`, or `script`."""

    argv: Annotated[
        tuple[str, ...], Meta(description="a program and its arguments, each one item; no shell reads them")
    ] = ()
    script: Annotated[str, Meta(description="or a text for sh -c, with pipes and so on")] = ""
    background: Annotated[bool, Meta(description="return at once; shell.read shows the output")] = False

    @classmethod
    def normalize(cls, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """Refuse a text in place of a list: nobody would see where its arguments end."""
        if isinstance(values.get("argv"), str):
            raise ValueError(  # noqa: TRY004 - the error of the hook
                "argv is a list with each argument as one item; a text for the shell is script"
            )
        return values

    def find_problem(self) -> str:
        """Say what is wrong with the command."""
        if bool(self.argv) == bool(self.script.strip()):
            return "give argv or script, one of them"
        if self.argv and (not self.argv[0] or self.argv[0].startswith("-")):
            return "the first item is a program: its name is not empty and does not begin with -"
        # What a person is shown, and says yes to, is what runs.
        if any("\r" in text or replace_controls(text) != text for text in (self.script, *self.argv)):
            return "a command has no control characters; write them as escapes, such as printf '\\033'"
        if sum(map(len, self.argv), len(self.script)) > MAX_COMMAND_CHARS:
            return f"a command has at most {MAX_COMMAND_CHARS} characters; put more into a file"
        return ""

    @property
    def command(self) -> Sequence[str]:
        """The program and its arguments."""
        return self.argv or ("/bin/sh", "-c", self.script)

    @property
    def text(self) -> str:
        """The command for people, as it could be typed."""
        return join(self.argv) if self.argv else self.script


class ShellJobArgs(Args, frozen=True):
    """Which program in the background."""

    job: Annotated[str, Meta(description="the number of the program; by default the newest")] = ""


class BackgroundProgram(Struct, frozen=True):
    """A program in the background, as it is now.

    Attributes:
        job: its number.
        command: what runs, for people.
        output: what it has written so far.
        end: how it ended; None while it runs.
        limit: the seconds that it may run.
        is_new: it was started by this call.
    """

    job: str
    command: str
    output: str
    end: ProgramEnd | None
    limit: float
    is_new: bool = False

    def describe(self, caller: Caller) -> str:
        """Show its output below a line about its state; of a new one, say how that is done later."""
        texts = caller.result_texts
        if self.is_new:
            return texts.say("BackgroundProgram.started", job=self.job)
        how = texts.say("shell_running") if self.end is None else self.end.describe(texts, self.limit)
        head = texts.say("BackgroundProgram", job=self.job, how=how)
        return f"[{head}]\n$ {self.command}\n{self.output or texts.say('shell_no_output')}"


class ShellCommands:
    """Run programs in the folder of a chat."""

    def __init__(self, service: ShellService) -> None:
        self.service = service

    @command(
        "shell run",
        chat=("shell.run",),
        in_shell=False,
        form="[script]",
        effect=RUNS_PROGRAMS,
        role=Role.OWNER,
        for_model=True,
        writes=False,  # a turn that is stopped ends its program
        help=CommandHelp(HelpTopic.OTHER, "Run a program", (",shell.run ls -l", ",shell.run wc -l *.txt")),
    )
    async def run(self, caller: Caller, args: ShellRunArgs) -> ProgramResult | BackgroundProgram:
        """Run a program in the folder of this chat, in a sandbox: a list of arguments, or a text for the shell."""
        service, session = self.service, caller.required_turn.session
        try:
            if args.background:
                return self._describe_job(await service.start(session, args.command, args.text), is_new=True)
            return await service.run(session, args.command)
        except SandboxUnusable as error:
            raise CommandRefused("shell_off", reason=str(error)) from None
        except TooManyJobs:
            raise CommandRefused("shell_too_many", count=service.settings.max_jobs) from None

    @command(
        "shell read",
        chat=("shell.read",),
        in_shell=False,
        effect=READS_STORED,
        role=Role.OWNER,
        for_model=True,
        help=CommandHelp(HelpTopic.OTHER, "Output of a running program", (",shell.read", ",shell.read 3")),
    )
    async def read(self, caller: Caller, args: ShellJobArgs) -> BackgroundProgram:
        """Show what a program in the background has written, and whether it still runs."""
        return self._describe_job(self._find_job(caller, args))

    @command(
        "shell stop",
        chat=("shell.stop",),
        in_shell=False,
        effect=INSIDE,
        role=Role.OWNER,
        for_model=True,
        help=CommandHelp(HelpTopic.OTHER, "End a running program", (",shell.stop", ",shell.stop 3")),
    )
    async def stop(self, caller: Caller, args: ShellJobArgs) -> BackgroundProgram:
        """End a program in the background, with everything it has started."""
        job = self._find_job(caller, args)
        await job.stop()
        return self._describe_job(job)

    async def plan(self, turn: Turn, args: ShellRunArgs, effect: Effect, digest: str) -> CallPlan:
        """Say where a command would run, and which files of the chat's folder it names.

        Args:
            turn: the turn of the call.
            args: the command.
            effect: of the call.
            digest: of the call.
        """
        texts, service = turn.result_texts, self.service
        sandbox = await self._find_sandbox()
        network = texts.say("shell_with_network" if sandbox.has_network else "shell_without_network")
        conditions = texts.say(
            "shell_conditions", folder=service.find_workspace(turn.session), sandbox=sandbox.name, network=network
        )
        named = await service.digest_named_files(turn.session, [*args.argv, args.script])
        folders = await service.list_folders([*args.argv, args.script])
        files = [f"{content}  {path}" for path, content in (*named.items(), *folders.items())]
        shown = ", ".join([*named, *folders])
        lines = [conditions, *([texts.say("shell_named", files=shown)] if shown else [])]
        state = "\n".join([conditions, *files])
        value = _grant_value(digest, turn.session, files)
        target = GrantTarget(GrantKind.ARGUMENTS, value) if args.argv else None
        return CallPlan(effect, "\n".join([args.text, "", *lines]), target, state=state)

    async def _find_sandbox(self) -> Sandbox:
        try:
            return await self.service.find_sandbox()
        except SandboxUnusable as error:
            raise CommandRefused("shell_off", reason=str(error)) from None

    def _find_job(self, caller: Caller, args: ShellJobArgs) -> ShellJob:
        jobs = self.service.list_jobs(caller.required_turn.session)
        if not jobs:
            raise CommandRefused("shell_no_job")
        found = [job for job in jobs if not args.job or job.id == args.job]
        if not found:
            raise CommandRefused("shell_unknown_job", job=args.job, jobs=", ".join(job.id for job in jobs))
        return found[-1]

    def _describe_job(self, job: ShellJob, *, is_new: bool = False) -> BackgroundProgram:
        limit = self.service.settings.job_timeout
        return BackgroundProgram(job.id, job.command, job.output, job.end, limit, is_new)


def shell_tools(service: ShellService, settings: ShellSettings) -> list[Tool]:
    """Build the tools for the programs of a bot under these settings."""
    commands = ShellCommands(service)
    effect = structs.replace(RUNS_PROGRAMS, has_network=settings.network or settings.sandbox == "none")

    async def plan_run(turn: Turn, args: ShellRunArgs) -> CallPlan:
        return await commands.plan(turn, args, effect, digest_call(run, args))

    options: dict[str, dict[str, Any]] = {
        "shell_run": {"plan": plan_run, "timeout": settings.timeout + TIMEOUT_MARGIN_SECONDS},
        "shell_read": {"is_rare": True},
        "shell_stop": {"is_rare": True},
    }
    run, *others = make_tools(ShellCommands, lambda: commands, **options)
    return [replace(run, effect=effect), *others]


def _grant_value(digest: str, session: str, files: Sequence[str]) -> str:
    """Return what a standing grant covers: the call in the folder of this chat, and the files that it names as they are.

    The model may write these unasked, and the same words run other files in the folder of another chat.
    """
    return sha256("\n".join([digest, session, *files]).encode()).hexdigest()
