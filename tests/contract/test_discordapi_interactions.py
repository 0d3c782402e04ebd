"""The Discord server for tests: commands, and what people see of their answers, judged by discord.py."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable, Coroutine
from typing import Any

import discord
import pytest
from discord import app_commands

from tests.fakes.discordapi.client import Library, raw, running
from tests.fakes.discordapi.desk import FAILED
from tests.fakes.discordapi.errors import Json
from tests.fakes.discordapi.rooms import Room
from tests.fakes.discordapi.server import Server

Body = Callable[[discord.Interaction[Library]], Coroutine[Any, Any, None]]


def _room(server: Server) -> Room:
    return server.guild("Home", server.user("Ada")).text("general")


class Commanded(Library):
    """A client with the command /ask, which does what a test says."""

    def __init__(self, server: Server, body: Body) -> None:
        super().__init__(server)
        self.tree: app_commands.CommandTree[Commanded] = app_commands.CommandTree(self)
        self.failed: list[BaseException] = []

        async def act(interaction: discord.Interaction[Library], text: str = "") -> None:
            interaction.extras["text"] = text
            try:
                await body(interaction)
            except discord.HTTPException as error:
                self.failed.append(error)

        self.tree.add_command(app_commands.Command(name="ask", description="Asks.", callback=act))

    async def setup_hook(self) -> None:
        await super().setup_hook()
        await self.tree.sync()


async def test_a_command_is_answered_at_once() -> None:
    async def body(interaction: discord.Interaction[Library]) -> None:
        await interaction.response.send_message(f"you said {interaction.extras['text']}")
        first = await interaction.original_response()
        await interaction.followup.send("and more", file=discord.File(io.BytesIO(b"x"), "x.txt"))
        await interaction.edit_original_response(content=f"{first.content}!")

    async with Server() as server, running(server, Commanded(server, body)):
        room = _room(server)
        ada = room.channel.guild.owner if room.channel.guild else server.user("nobody")
        asked = server.slash(room, ada, "ask", {"text": "hi"})
        await server.until(lambda: asked.text == "you said hi!")
        assert asked.state == "answered"
        assert asked.saw == [
            "(/ask by Ada) you said hi",
            "(to #1) and more [file x.txt, 1 bytes]",
            "(/ask by Ada) you said hi!",
        ]
        assert room.texts() == ["you said hi!", "and more"]
        assert server.calls("POST /interactions/{}/{}/callback")[0].auth == ""


async def test_a_deferred_answer_comes_later() -> None:
    async def body(interaction: discord.Interaction[Library]) -> None:
        await interaction.response.defer(thinking=True)
        interaction.client.seen.append(("deferred", ()))
        await asyncio.sleep(0.05)
        await interaction.edit_original_response(content="here it is")

    async with Server() as server, running(server, Commanded(server, body)) as client:
        ada = server.user("Ada")
        room = server.dm(ada)
        asked = server.slash(room, ada, "ask")
        await server.until(lambda: client.events("deferred"))
        assert (asked.state, asked.text) == ("deferred", None)
        assert room.messages[0].flags & 1 << 7
        await server.until(lambda: asked.text == "here it is")
        assert not room.messages[0].flags & 1 << 7


async def test_the_first_further_answer_after_a_deferral_is_the_answer() -> None:
    async def body(interaction: discord.Interaction[Library]) -> None:
        await interaction.response.defer()
        await interaction.followup.send("one")
        await interaction.followup.send("two")
        await interaction.delete_original_response()

    async with Server() as server, running(server, Commanded(server, body)):
        ada = server.user("Ada")
        room = server.dm(ada)
        asked = server.slash(room, ada, "ask")
        await server.until(lambda: room.texts() == ["two"])
        assert [one.content for one in asked.followups] == ["two"]


async def test_an_answer_for_one_person_is_not_in_the_channel_of_others() -> None:
    async def body(interaction: discord.Interaction[Library]) -> None:
        await interaction.response.send_message("psst", ephemeral=True)

    async with Server() as server, running(server, Commanded(server, body)) as client, raw(server) as api:
        room = _room(server)
        ada = server.world.users[room.channel.guild.owner.id] if room.channel.guild else server.user("nobody")
        asked = server.slash(room, ada, "ask")
        await server.until(lambda: asked.state == "answered")
        assert asked.saw == ["(only for Ada) (/ask by Ada) psst"]
        assert await api.ask("GET", f"/channels/{room.id}/messages") == (200, [])
        assert client.events("message") == []


async def test_nothing_in_time_is_what_the_person_sees() -> None:
    async def body(interaction: discord.Interaction[Library]) -> None:
        await asyncio.sleep(0.15)
        await interaction.response.send_message("late")

    async with Server(answer_within=0.05) as server, running(server, Commanded(server, body)) as client:
        assert isinstance(client, Commanded)
        ada = server.user("Ada")
        asked = server.slash(server.dm(ada), ada, "ask")
        await server.until(lambda: client.failed)
        assert (asked.state, asked.saw) == ("failed", [FAILED])
        (error,) = client.failed
        assert isinstance(error, discord.NotFound)
        assert error.code == 10062
    assert server.transcript(times=False) == (
        "== Ada (direct) ==\n-- Ada used /ask\n-- Bubbot to Ada: The application did not respond\n"
    )


async def test_a_deferral_does_not_last_for_ever() -> None:
    async def body(interaction: discord.Interaction[Library]) -> None:
        await interaction.response.defer(thinking=True)
        await asyncio.sleep(0.6)
        await interaction.edit_original_response(content="too late")

    async with Server(token_life=0.5) as server, running(server, Commanded(server, body)) as client:
        assert isinstance(client, Commanded)
        ada = server.user("Ada")
        asked = server.slash(server.dm(ada), ada, "ask")
        await server.until(lambda: client.failed)
        (error,) = client.failed
        assert isinstance(error, discord.HTTPException)
        assert (error.status, error.code) == (401, 50027)
        assert asked.saw[-1] == FAILED


async def test_an_answer_is_given_once_and_before_further_ones() -> None:
    async with Server() as server, raw(server) as api:
        ada = server.user("Ada")
        commands = f"/applications/{server.bot.application_id}/commands"
        assert (await api.ask("PUT", commands, json=[{"name": "ask", "description": "Asks."}]))[0] == 200
        asked = server.slash(server.dm(ada), ada, "ask")
        path, further = f"/interactions/{asked.id}/{asked.token}/callback", f"/webhooks/{server.bot.application_id}"
        words: Json = {"content": "hi"}
        assert (await api.ask("POST", f"{further}/{asked.token}", auth="", json=words))[1]["code"] == 10015
        assert (await api.ask("POST", path, auth="", json={"type": 9}))[1]["code"] == 50035
        assert (await api.ask("POST", path, auth="", json={"type": 4, "data": {}}))[1]["code"] == 50006
        assert await api.ask("POST", path, auth="", json={"type": 4, "data": words}) == (204, None)
        assert (await api.ask("POST", path, auth="", json={"type": 4, "data": words}))[1]["code"] == 40060
        assert (await api.ask("POST", f"{further}/wrong", auth="", json=words))[1]["code"] == 50027
        assert (await api.ask("POST", f"/webhooks/77/{asked.token}", auth="", json=words))[1]["code"] == 10015
        assert (await api.ask("POST", f"{further}/{asked.token}", auth="", json=words))[0] == 200
        gone = f"{further}/{asked.token}/messages/@original"
        assert (await api.ask("DELETE", gone, auth=""))[0] == 204
        assert (await api.ask("GET", gone, auth=""))[1]["code"] == 10008
        assert (await api.ask("POST", "/interactions/5/x/callback", auth="", json={"type": 5}))[1]["code"] == 10062


async def test_an_answer_can_come_with_its_message() -> None:
    async with Server() as server, raw(server) as api:
        room = _room(server)
        owner = server.bot.user if room.channel.guild is None else room.channel.guild.owner
        commands = f"/applications/{server.bot.application_id}/commands"
        await api.ask("PUT", commands, json=[{"name": "ask", "description": "Asks."}])
        asked = server.slash(room, owner, "/ask")
        path = f"/interactions/{asked.id}/{asked.token}/callback?with_response=true"
        status, told = await api.ask("POST", path, auth="", json={"type": 4, "data": {"content": "hi"}})
        assert (status, told["interaction"]["response_message_loading"]) == (200, False)
        assert told["resource"]["message"]["interaction_metadata"]["user"]["username"] == "ada"
        later = server.slash(room, owner, "/ask")
        path = f"/interactions/{later.id}/{later.token}/callback?with_response=true"
        status, told = await api.ask("POST", path, auth="", json={"type": 5})
        assert (status, told["interaction"]["response_message_loading"], "resource" in told) == (200, True, False)


async def test_a_button_is_pressed_and_its_message_changed() -> None:
    async with Server() as server, running(server) as client:
        ada = server.user("Ada")
        room = server.dm(ada)
        view = discord.ui.View()

        async def pressed(interaction: discord.Interaction) -> None:
            await interaction.response.edit_message(content="done", view=None)

        button: discord.ui.Button[discord.ui.View] = discord.ui.Button(label="Go", custom_id="go")
        button.callback = pressed  # type: ignore[method-assign]
        view.add_item(button)
        channel = await client.fetch_channel(room.id)
        assert isinstance(channel, discord.DMChannel)
        await channel.send("sure?", view=view)
        asked = server.press(room, ada, room.messages[0], "go")
        await server.until(lambda: asked.state == "answered")
        assert room.texts() == ["done"]
        with pytest.raises(ValueError, match="no button"):
            server.press(room, ada, room.messages[0], "go")
        view.stop()


GOOD: Json = {"name": "ask", "description": "Asks."}


@pytest.mark.parametrize(
    ("command", "path", "code"),
    [
        ({**GOOD, "name": "Ask"}, "name", "APPLICATION_COMMAND_INVALID_NAME"),
        ({**GOOD, "name": "a b"}, "name", "APPLICATION_COMMAND_INVALID_NAME"),
        ({**GOOD, "name": "x" * 33}, "name", "BASE_TYPE_BAD_LENGTH"),
        ({"name": "ask"}, "description", "BASE_TYPE_REQUIRED"),
        ({**GOOD, "description": "x" * 101}, "description", "BASE_TYPE_BAD_LENGTH"),
        ({**GOOD, "options": [{**GOOD, "type": 3}] * 26}, "options", "BASE_TYPE_MAX_LENGTH"),
        ({**GOOD, "options": [{**GOOD, "type": 99}]}, "options.0.type", "BASE_TYPE_CHOICES"),
        (
            {**GOOD, "options": [{**GOOD, "type": 3}, {**GOOD, "type": 3, "name": "b", "required": True}]},
            "options.1",
            "APPLICATION_COMMAND_OPTIONS_REQUIRED_INVALID",
        ),
        (
            {**GOOD, "options": [{**GOOD, "type": 3}] * 2},
            "options.1.name",
            "APPLICATION_COMMAND_OPTIONS_NAME_ALREADY_EXISTS",
        ),
    ],
)
async def test_commands_that_are_refused(command: Json, path: str, code: str) -> None:
    async with Server() as server, raw(server) as api:
        commands = f"/applications/{server.bot.application_id}/commands"
        status, answer = await api.ask("PUT", commands, json=[{**GOOD, "name": "fine"}, command])
        assert (status, answer["code"]) == (400, 50035)
        found = answer["errors"]["1"]
        for step in path.split("."):
            found = found[step]
        assert found["_errors"][0]["code"] == code
        assert (await api.ask("GET", commands)) == (200, [])


async def test_commands_are_replaced_as_a_whole_and_keep_their_ids() -> None:
    async with Server() as server, raw(server) as api:
        commands = f"/applications/{server.bot.application_id}/commands"
        first = (await api.ask("PUT", commands, json=[GOOD, {**GOOD, "name": "other"}]))[1]
        second = (await api.ask("PUT", commands, json=[{**GOOD, "description": "Asks more."}]))[1]
        assert [one["id"] for one in second] == [first[0]["id"]]
        assert second[0]["version"] != first[0]["version"]
        assert (await api.ask("GET", commands))[1] == second
        assert (await api.ask("PUT", commands, json=[GOOD, GOOD]))[1]["errors"]["1"]["_errors"][0]["code"] == (
            "APPLICATION_COMMANDS_DUPLICATE_NAME"
        )
        assert (await api.ask("GET", "/applications/5/commands"))[1]["code"] == 50001


async def test_people_can_only_type_what_is_registered() -> None:
    async with Server() as server, raw(server) as api:
        ada = server.user("Ada")
        option = {"type": 4, "name": "count", "description": "How many.", "required": True}
        group = {**GOOD, "name": "list", "options": [{**GOOD, "type": 1, "name": "add", "options": [option]}]}
        await api.ask("PUT", f"/applications/{server.bot.application_id}/commands", json=[group])
        wrong: list[tuple[str, dict[str, object]]] = [
            ("nothing", {}),
            ("list", {}),
            ("list remove", {}),
            ("list add", {}),
            ("list add", {"count": "one"}),
            ("list add", {"count": 1, "more": 2}),
        ]
        for command, options in wrong:
            with pytest.raises(ValueError, match=r"."):
                server.slash(server.dm(ada), ada, command, options)
        asked = server.slash(server.dm(ada), ada, "list add", {"count": 1})
        assert asked.payload["data"]["options"] == [
            {"type": 1, "name": "add", "options": [{"type": 4, "name": "count", "value": 1}]}
        ]
