"""A shopping list for each conversation, a feature of bubbot in a package of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from msgspec import UNSET, Meta, UnsetType
from pydantic import Field

from bubbot.arguments.fields import Args, NoArguments
from bubbot.errors import ConfigError, ToolRetry
from bubbot.feature import Feature, FeatureFactory, Kernel
from bubbot.ports.channel import Role
from bubbot.ports.settings import SettingsSection, Whole
from bubbot.ports.turn import Turn
from bubbot.shell_command import Argument, CommandContext, CommandGroup, CommandResult, command
from bubbot.tape.fact import Fact, models_of
from bubbot.tape.query import TapeQuery, WholeTape
from bubbot.tape.references import EntryId
from bubbot.tape.view import QueryAnswers
from bubbot.tool import INSIDE, READS_PEOPLE, Tool, tool

ADDED, BOUGHT = "shopping/added", "shopping/bought"


class Item(Fact):
    """An item was put on the list, or was bought: then `added` is the entry that put it there."""

    EVENTS = (ADDED, BOUGHT)
    item: str
    added: EntryId | UnsetType = UNSET


class ShoppingSettings(SettingsSection):
    """`[shopping]`: the shopping lists."""

    max_items: Whole = Field(default=50, ge=1, description="The most items on a list.")


class ItemArgs(Args, frozen=True):
    """The arguments of `shopping.add` and `shopping.bought`."""

    item: Annotated[str, Meta(min_length=1, max_length=100, description="what to buy, such as milk")]


class ListView:
    """What is on the list: the items that were added and not bought since, oldest first, and the ids of their entries."""

    heavy = False

    def queries(self, tape: str) -> tuple[TapeQuery, ...]:
        """Read the facts of the list, on the whole tape of the conversation."""
        return (TapeQuery(tape, WholeTape(), kinds=("event",), names=Item.EVENTS),)

    def fold(self, answers: QueryAnswers) -> Mapping[str, int]:
        """Apply the facts in their order."""
        items: dict[str, int] = {}
        for entry in answers[0]:
            items.pop(item := Item.of(entry).item, None)
            if entry.name == ADDED:
                items[item] = entry.id
        return items


def shopping_tools(settings: ShoppingSettings) -> list[Tool]:
    """Make the tools, which are also commands."""

    @tool("shopping.add", commands=("buy",), effect=INSIDE)
    async def add(turn: Turn, args: ItemArgs) -> str:
        """Put an item on the shopping list of this conversation."""
        if len(await turn.tape.read(ListView())) >= settings.max_items:
            raise ToolRetry(f"the list is full: {settings.max_items} items are on it")
        await turn.tape.append([Item(args.item).to_entry(ADDED)])
        return f"{args.item} is on the list."

    @tool("shopping.bought", commands=("bought",), effect=INSIDE)
    async def bought(turn: Turn, args: ItemArgs) -> str:
        """Take an item off the shopping list."""
        if (entry_id := (await turn.tape.read(ListView())).get(args.item)) is None:
            raise ToolRetry(f"{args.item} is not on the list")
        await turn.tape.append([Item(args.item, entry_id).to_entry(BOUGHT)])
        return f"{args.item} is off the list."

    @tool("shopping.list", commands=("shopping",), effect=READS_PEOPLE)
    async def show(turn: Turn, args: NoArguments) -> str:
        """Show the shopping list."""
        return "\n".join(await turn.tape.read(ListView())) or "The list is empty."

    return [add, bought, show]


class PutArgs(Args, frozen=True):
    """The arguments of `bubbot shopping put` and `,put`."""

    items: Annotated[list[str], Argument("what to buy, such as milk,bread")]
    session: Annotated[str | None, Argument("the conversation (default: default)")] = None


@command("shopping put", writes=True, typed=("put",), role=Role.MEMBER)
async def put(context: CommandContext, args: PutArgs) -> CommandResult:
    """Put several items on a list."""
    async with context.open_session(args.session, write=True, create=True) as tape:
        if len(await tape.read(ListView())) + len(args.items) > context.settings.max_items:
            raise ConfigError(f"the list is full: it takes {context.settings.max_items} items")
        await tape.append([Item(item).to_entry(ADDED) for item in args.items])
        return CommandResult(", ".join(await tape.read(ListView())) + "\n")


COMMANDS = CommandGroup("shopping", (put,), "Change the shopping list of a conversation.")


async def prompt(turn: Turn, _traits: object) -> str:
    """Tell the model what is on the list."""
    return f"<shopping>{', '.join(await turn.tape.read(ListView()))}</shopping>"


def build(kernel: Kernel, settings: ShoppingSettings) -> Feature:
    """Build the feature from its settings."""
    return Feature(name="shopping", tools=shopping_tools(settings), commands=(put,), prompt=(prompt,))


FACTORY = FeatureFactory("shopping", build, ShoppingSettings, events=models_of(Item))
