"""The tools that run programs."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from shlex import join
from typing import Self

from pydantic import Field, model_validator

from bubbot.errors import ToolFailed, ToolRetry
from bubbot.features.shell.runner import ProgramEnd
from bubbot.features.shell.sandbox import SandboxUnusable
from bubbot.features.shell.service import ShellJob, ShellService, TooManyJobs
from bubbot.features.shell.settings import ShellSettings
from bubbot.ports.channel import Role
from bubbot.ports.text import replace_controls
from bubbot.ports.tool import (
    INSIDE,
    READS_STORED,
    CallPlan,
    CommandHelp,
    Effect,
    GrantKind,
    GrantTarget,
    HelpTopic,
    Tool,
    ToolArgs,
    digest_call,
    tool,
)
from bubbot.ports.turn import Turn
from bubbot.texts import Texts

MAX_COMMAND_CHARS = 20_000
TIMEOUT_MARGIN_SECONDS = 30.0
"""Time above that of a program, for its sandbox and its end."""


class ShellRunArgs(ToolArgs):
    """The arguments of `shell.run`: `argv`, or `script`."""

    argv: list[str] = Field(default=[], description="a program and its arguments, each one item; no shell reads them")
    script: str = Field(default="", description="or a text for sh -c, with pipes and so on")
    background: bool = Field(default=False, description="return at once; shell.read shows the output")
    positional = ("script",)

    @model_validator(mode="after")
    def _check_command(self) -> Self:
        if bool(self.argv) == bool(self.script.strip()):
            raise ValueError("give argv or script, one of them")
        if self.argv and (not self.argv[0] or self.argv[0].startswith("-")):
            raise ValueError("the first item is a program: its name is not empty and does not begin with -")
        # What a person is shown, and says yes to, is what runs.
        if any("\r" in text or replace_controls(text) != text for text in (self.script, *self.argv)):
            raise ValueError("a command has no control characters; write them as escapes, such as printf '\\033'")
        if sum(map(len, self.argv), len(self.script)) > MAX_COMMAND_CHARS:
            raise ValueError(f"a command has at most {MAX_COMMAND_CHARS} characters; put more into a file")
        return self

    @property
    def command(self) -> list[str]:
        """The program and its arguments."""
        return self.argv or ["/bin/sh", "-c", self.script]

    @property
    def text(self) -> str:
        """The command for people, as it could be typed."""
        return join(self.argv) if self.argv else self.script


class ShellJobArgs(ToolArgs):
    """The arguments of `shell.read` and `shell.stop`."""

    job: str = Field(default="", description="the number of the program; by default the newest")


def shell_tools(service: ShellService, settings: ShellSettings) -> list[Tool]:
    """Build the tools for the programs of a bot under these settings."""
    effect = Effect(has_network=settings.network or settings.sandbox == "none", in_workspace=True)

    async def plan_run(turn: Turn, args: ShellRunArgs) -> CallPlan:
        texts = turn.result_texts
        try:
            sandbox = await service.find_sandbox()
        except SandboxUnusable as error:
            raise ToolFailed(texts.say("shell_off", reason=error)) from None
        network = texts.say("shell_with_network" if sandbox.has_network else "shell_without_network")
        conditions = texts.say(
            "shell_conditions", folder=service.find_workspace(turn.session), sandbox=sandbox.name, network=network
        )
        named = await service.digest_named_files(turn.session, [*args.argv, args.script])
        files = [f"{digest}  {path}" for path, digest in named.items()]
        lines = [conditions, *([texts.say("shell_named", files=", ".join(named))] if named else [])]
        state = "\n".join([conditions, *files])
        value = _grant_value(digest_call(run, args), turn.session, files)
        target = GrantTarget(GrantKind.ARGUMENTS, value) if args.argv else None
        return CallPlan(effect, "\n".join([args.text, "", *lines]), target, state=state)

    @tool(
        "shell.run",
        effect=effect,
        role=Role.OWNER,
        timeout=settings.timeout + TIMEOUT_MARGIN_SECONDS,
        plan=plan_run,
        help=CommandHelp(HelpTopic.OTHER, "Run a program", (",shell.run ls -l", ",shell.run wc -l *.txt")),
    )
    async def run(turn: Turn, args: ShellRunArgs) -> str:
        """Run a program in the folder of this chat, in a sandbox: a list of arguments, or a text for the shell."""
        texts = turn.result_texts
        try:
            if args.background:
                job = await service.start(turn.session, args.command, args.text)
                return texts.say("shell_started", job=job.id)
            result = await service.run(turn.session, args.command)
        except SandboxUnusable as error:
            raise ToolFailed(texts.say("shell_off", reason=error)) from None
        except TooManyJobs:
            raise ToolFailed(texts.say("shell_too_many", count=settings.max_jobs)) from None
        head = texts.say("shell_ended", how=_describe_end(texts, result.end, settings.timeout), seconds=result.seconds)
        return f"[{head}]\n{result.output or texts.say('shell_no_output')}"

    @tool(
        "shell.read",
        effect=READS_STORED,
        is_rare=True,
        role=Role.OWNER,
        help=CommandHelp(HelpTopic.OTHER, "Output of a running program", (",shell.read", ",shell.read 3")),
    )
    async def read(turn: Turn, args: ShellJobArgs) -> str:
        """Show what a program in the background has written, and whether it still runs."""
        return _format_job(turn.result_texts, _find_job(turn, service, args), settings.job_timeout)

    @tool(
        "shell.stop",
        effect=INSIDE,
        is_rare=True,
        role=Role.OWNER,
        help=CommandHelp(HelpTopic.OTHER, "End a running program", (",shell.stop", ",shell.stop 3")),
    )
    async def stop(turn: Turn, args: ShellJobArgs) -> str:
        """End a program in the background, with everything it has started."""
        job = _find_job(turn, service, args)
        await job.stop()
        return _format_job(turn.result_texts, job, settings.job_timeout)

    return [run, read, stop]


def _grant_value(digest: str, session: str, files: Sequence[str]) -> str:
    """Return what a standing grant covers: the call in the folder of this chat, and the files that it names as they are.

    The model may write these unasked, and the same words run other files in the folder of another chat.
    """
    return sha256("\n".join([digest, session, *files]).encode()).hexdigest()


def _find_job(turn: Turn, service: ShellService, args: ShellJobArgs) -> ShellJob:
    texts, jobs = turn.result_texts, service.list_jobs(turn.session)
    if not jobs:
        raise ToolFailed(texts.say("shell_no_job"))
    found = [job for job in jobs if not args.job or job.id == args.job]
    if not found:
        raise ToolRetry(texts.say("shell_unknown_job", job=args.job, jobs=", ".join(job.id for job in jobs)))
    return found[-1]


def _format_job(texts: Texts, job: ShellJob, seconds: float) -> str:
    how = texts.say("shell_running") if job.end is None else _describe_end(texts, job.end, seconds)
    head = texts.say("shell_job", job=job.id, how=how)
    return f"[{head}]\n$ {job.command}\n{job.output or texts.say('shell_no_output')}"


def _describe_end(texts: Texts, end: ProgramEnd, seconds: float) -> str:
    match end.reason:
        case "time":
            return texts.say("shell_timeout", seconds=seconds)
        case "output":
            return texts.say("shell_too_much_output")
        case "stopped":
            return texts.say("shell_stopped")
    return texts.say("shell_status", status=end.status)
