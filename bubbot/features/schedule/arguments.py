"""The arguments of the commands about schedules."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from msgspec import Meta
from msgspec.structs import asdict

from bubbot.arguments.fields import Args
from bubbot.features.schedule.refusal import refusal_text
from bubbot.shell_command import Argument
from bubbot.texts import Texts
from bubbot.times.refusal import TimeRefused

MAX_NEXT_TIMES = 100
"""The times of a schedule that `schedule next` works out."""
WHEN = (
    "in words, English or Chinese: tomorrow at 9am, in half an hour, every weekday at 8, last friday of the month at "
    "16:00; or 2026-12-24 18:00, every 90m, every 2d from 2026-12-01 09:00, 0 9 * * 1-5, @daily"
)
WHEN_HELP = "such as 'tomorrow at 9am', 'every weekday at 8', '0 9 * * 1-5', 'every 90m' or '2026-12-24 18:00'"
JobId: TypeAlias = Annotated[
    str,
    Meta(description="the job's id, its beginning, its name, or words of its text"),
    Argument("its id, the beginning of it, its name, or words of its text; list shows them"),
]
Chat: TypeAlias = Annotated[str, Argument("the chat, such as telegram:42")]


def parse_seconds(text: str) -> int:
    """Parse a duration such as `5m`; `0` and `none` are 0. Raise `TimeRefused`."""
    from bubbot.times.phrases import parse_duration  # compiled when a time is read

    return 0 if text in ("0", "none") else parse_duration(text)


def check_length(text: str) -> str:
    """Check that a text is a duration. Raise `ValueError`."""
    try:
        parse_seconds(text)
    except TimeRefused as error:
        raise ValueError(refusal_text(error, Texts())) from error
    return text


class JobOptions(Args, frozen=True, kw_only=True):
    """The options of a job; one that is left out changes nothing."""

    prompt: Annotated[
        str, Meta(description="what I am to be asked then"), Argument("what the bot is to be asked", "TEXT")
    ] = ""
    command: Annotated[
        str, Meta(description="a comma command to run, such as ,memory.show"), Argument(metavar="TEXT")
    ] = ""
    text: Annotated[
        str,
        Meta(description="a text to send as it is"),
        Argument("a text to send as it is, without asking a model", "TEXT"),
    ] = ""
    zone: Annotated[str, Meta(description="IANA time zone (default: the chat's)"), Argument(metavar="ZONE")] = ""
    name: Annotated[str, Meta(description="a short name"), Argument(metavar="NAME")] = ""
    catch_up: Annotated[
        Literal["", "skip", "once", "all"],
        Meta(description="firings missed while I was away: skip, once (usual) or all"),
        Argument("what to do with missed firings", "HOW"),
    ] = ""
    catch_limit: Annotated[
        int | None,
        Meta(description="how many of these at most"),
        Argument("how many --catch-up all does at most", "N"),
    ] = None
    jitter: Annotated[
        str, Meta(description="come up to this much later, such as 5m"), Argument("", "LENGTH", check_length)
    ] = ""
    until: Annotated[str, Meta(description="the last day or time, such as 2026-12-31"), Argument(metavar="DATE")] = ""
    runs: Annotated[
        int | None,
        Meta(description="how often it comes at most"),
        Argument("how often it comes at most; 0 for no limit", "N"),
    ] = None
    budget: Annotated[
        str,
        Meta(description="how long it may take, such as 2m"),
        Argument("how long it may take, such as 2m; 0 for no limit", "LENGTH", check_length),
    ] = ""
    urgent: Annotated[
        bool | None,
        Meta(description="fire in quiet hours too (owners, in a direct chat)"),
        Argument("fire in quiet hours too"),
    ] = None
    nested: Annotated[
        bool | None,
        Meta(description="its turns may create schedules (owners, in a direct chat)"),
        Argument("its turns may create schedules"),
    ] = None
    to: Annotated[
        str,
        Meta(description="another chat that gets the answer, such as telegram:42 (owners, in a direct chat)"),
        Argument("another chat that gets the answer, such as telegram:42", "SESSION"),
    ] = ""
    allow: Annotated[
        tuple[str, ...] | None,
        Meta(
            description="tools that its turns may use to act or read outside, such as web.search or "
            "web.fetch:example.org (owners, in a direct chat)"
        ),
        Argument(
            "what its turns may do besides, such as 'web.search, web.fetch:example.org'; none for nothing", "WHAT"
        ),
    ] = None

    def options(self) -> dict[str, Any]:
        """Return what was said of the job, durations in seconds. Raise `TimeRefused`."""
        said = {name: value for name, value in asdict(self).items() if value not in ("", None)}
        for name in ("jitter", "budget"):
            if name in said:
                said[name] = parse_seconds(said[name])
        return said


class AddJobArgs(JobOptions, frozen=True, kw_only=True):
    """A job. In a chat a typed `when` holds the prompt or text, too, or a command that begins with a comma."""

    when: Annotated[str, Meta(description=WHEN), Argument(WHEN_HELP)]


class AddJobToChatArgs(AddJobArgs, frozen=True, kw_only=True):
    """A job, and the chat in which it runs."""

    session: Chat


class EditJobArgs(JobOptions, frozen=True, kw_only=True):
    """A job, and what to change."""

    job: JobId
    when: Annotated[
        str,
        Meta(description=f"{WHEN}; only a time of day keeps the days"),
        Argument("another time, such as 'at 9am'; a mere time of day keeps the days"),
    ] = ""


class JobArgs(Args, frozen=True):
    """A job."""

    job: JobId


class ResumeJobArgs(Args, frozen=True):
    """A job to resume, or all that wait for the clock."""

    job: Annotated[str, Argument("a paused job; without one, all that wait for the clock")] = ""


class ListJobsArgs(Args, frozen=True):
    """Which jobs to list."""

    every: Annotated[bool, Meta(description="those of all chats (owners, in a direct chat)")] = False
    over: Annotated[bool, Meta(description="those too that have come to their end")] = False


class ListAllJobsArgs(Args, frozen=True):
    """Which jobs of all chats to list."""

    over: Annotated[bool, Argument("also jobs that have ended")] = False


class JobHistoryArgs(Args, frozen=True):
    """A job, and how much of its history to show."""

    job: JobId
    limit: Annotated[int, Meta(description="how many facts", ge=1, le=200)] = 20


class LongJobHistoryArgs(Args, frozen=True):
    """The same in a shell, which shows as much as one likes."""

    job: JobId
    limit: Annotated[int, Argument("how many facts (default: 20)", "N")] = 20


class NextTimesArgs(Args, frozen=True):
    """A schedule to work out."""

    when: Annotated[str, Argument(WHEN_HELP)]
    zone: Annotated[str, Argument("IANA time zone (default: the bot's)", "ZONE")] = ""
    count: Annotated[int, Argument("how many times, 1 to 100 (default: 5)", "N")] = 5


class ChatRulesArgs(Args, frozen=True, kw_only=True):
    """The rules of a chat; what is left out stays, and without any they are only reported."""

    zone: Annotated[
        str,
        Meta(description="IANA time zone in which times are read here, such as Europe/Berlin"),
        Argument("IANA time zone in which times are read there", "ZONE"),
    ] = ""
    quiet: Annotated[
        str,
        Meta(description="quiet hours, such as 22:00-07:00, or none"),
        Argument("such as 22:00-07:00, or none", "HOURS"),
    ] = ""


class SetChatRulesArgs(ChatRulesArgs, frozen=True, kw_only=True):
    """The same with the chat."""

    session: Chat
