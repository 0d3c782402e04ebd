"""The commands of settings: what of a change may be interrupted."""

from __future__ import annotations

import asyncio
from threading import Event
from typing import Any

import pytest

from bubbot.command import Caller
from bubbot.features.config.commands import ConfigCommands, SetArgs, SettingArgs
from bubbot.ports.settings import ReloadResult, SettingValue

KEY = "bot.name"


class File:
    """A file of settings that is read and written as slowly as `may_write` says."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}
        self.is_writing = Event()
        self.may_write = Event()

    def read(self, name: str) -> SettingValue:
        return SettingValue(name, self.values.get(name, ""), "file")

    def set(self, name: str, text: str) -> None:
        self.is_writing.set()
        self.may_write.wait(timeout=10)
        self.values[name] = text

    def unset(self, name: str) -> None:
        self.set(name, "")

    def find_override(self, name: str) -> str:
        return ""


class Bot:
    """A bot whose reload asks a platform that does not answer."""

    def __init__(self) -> None:
        self.file = File()
        self.is_reloading = asyncio.Event()
        self.was_interrupted = False

    def edit(self) -> Any:
        return self.file

    async def reload(self) -> ReloadResult:
        self.is_reloading.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.was_interrupted = True
            raise
        return ReloadResult()


def change(bot: Bot, name: str) -> asyncio.Task[Any]:
    commands = ConfigCommands(bot)
    if name == "set":
        return asyncio.create_task(commands.set_setting(Caller(), SetArgs(KEY, "Rosi")))
    return asyncio.create_task(commands.unset_setting(Caller(), SettingArgs(KEY)))


@pytest.mark.parametrize("name", ["set", "unset"])
async def test_a_reload_that_waits_for_a_platform_is_interrupted(name: str) -> None:
    bot = Bot()
    bot.file.may_write.set()
    task = change(bot, name)
    await bot.is_reloading.wait()
    task.cancel()
    await asyncio.wait([task], timeout=10)
    assert bot.was_interrupted
    assert task.cancelled()


@pytest.mark.parametrize("name", ["set", "unset"])
async def test_the_file_is_written_though_the_command_is_interrupted(name: str) -> None:
    bot = Bot()
    task = change(bot, name)
    await asyncio.to_thread(bot.file.is_writing.wait, 10)
    task.cancel()
    await asyncio.sleep(0)
    assert not task.done()
    bot.file.may_write.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert KEY in bot.file.values
    assert not bot.is_reloading.is_set()
