"""The tool that reads on in results and files that were too long to show."""

from pydantic import Field

from bubbot.errors import EntryNotFound, ToolFailed, ToolRetry
from bubbot.ports.tool import READS_STORED, CommandHelp, HelpTopic, Tool, ToolArgs, tool
from bubbot.ports.turn import Turn
from bubbot.runtime.calls import MAX_RESULT_PAGE_CHARS


class ReadResultArgs(ToolArgs):
    """The arguments of `result.read`."""

    handle: str = Field(description="the handle that the cut result or the file named")
    offset: int = Field(default=0, ge=0, description="the character to go on from")
    limit: int = Field(default=MAX_RESULT_PAGE_CHARS, ge=1, le=MAX_RESULT_PAGE_CHARS, description="how many characters")


@tool(
    "result.read",
    effect=READS_STORED,
    help=CommandHelp(
        HelpTopic.HISTORY,
        "Read on in a result that was cut",
        tuple(f",result.read {'3f' * 32}{more}" for more in ("", " offset=8000")),
    ),
)
async def result_read(turn: Turn, args: ReadResultArgs) -> str:
    """Read on in a result or an attached text file that was cut because it was too long."""
    texts = turn.result_texts
    try:
        text = (await turn.tape.get_blob(args.handle)).decode("utf-8-sig")
    except EntryNotFound:
        raise ToolRetry(texts.say("result_unknown", handle=args.handle)) from None
    except UnicodeDecodeError:
        raise ToolFailed(texts.say("result_not_text")) from None
    end = args.offset + args.limit
    rest = len(text) - end
    size = f", limit={args.limit}" if args.limit < MAX_RESULT_PAGE_CHARS else ""
    tail = texts.say("result_rest", number=rest, offset=end, limit=size) if rest > 0 else texts.say("result_end")
    return f"{text[args.offset : end]}\n{tail}"


def result_tools() -> list[Tool]:
    """Return the tools of this file."""
    return [result_read]
