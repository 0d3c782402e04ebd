"""`docs/howto/run-as-a-service.md` walked under a real systemd, against a Bot API server on loopback."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.e2e import nspawn
from tests.e2e.nspawn import Container, booted
from tests.fakes.botapi.gatherings import Gathering
from tests.fakes.botapi.server import Server
from tests.planting import mends, note_mended

HOME = "/var/lib/bubbot"
BUBBOT = "/opt/bubbot/bin/bubbot"
AS_BOT = ("setpriv", "--reuid=bubbot", "--regid=bubbot", "--clear-groups", BUBBOT, "--home", HOME)
SCRIPT = {"rules": [{"when": "slow", "steps": [{"delay": 5, "text": "Slowly: {text}"}]}]}
EXPOSURE = 1.2
"""What the page promises."""
WATCHDOG_SECONDS = 60
INSTALL = """
set -e
ldconfig
/opt/python/bin/python3 -m venv /opt/bubbot
site=$(/opt/bubbot/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
rm -rf "$site"/setuptools* "$site"/pkg_resources "$site"/_distutils_hack
for one in /opt/packages/*; do
    case ${one##*/} in bubbot*|__editable__*|pip*|__pycache__) continue ;; esac
    ln -sfn "$one" "$site/${one##*/}"
done
/opt/bubbot/bin/python -m pip install --quiet --no-index --no-deps --no-build-isolation /opt/source
"""
"""As the page says; what a machine gets from the registry comes from the packages of these tests here."""


def test_a_systemd_can_be_booted_here(request: pytest.FixtureRequest) -> None:
    lacking = nspawn.lacking()
    if lacking and not request.config.getoption("--proof"):
        pytest.skip(f"no real systemd can be booted here: it needs {lacking}")
    assert not lacking


@pytest.fixture
async def container(tmp_path: Path) -> AsyncIterator[Container]:
    """A booted machine that has never seen bubbot."""
    assert not nspawn.lacking()
    tree = tmp_path / "tree"
    await asyncio.to_thread(nspawn.debootstrap, tree)
    await asyncio.to_thread(nspawn.equip, tree)
    async with booted(tree) as found:
        yield found


class Walk:
    """One person, one machine, one platform."""

    def __init__(self, machine: Container, server: Server) -> None:
        self.machine = machine
        self.server = server
        self.ada = server.user("Ada")
        self.room: Gathering = server.private(self.ada)

    async def install(self) -> None:
        """A service of the system, which has no token yet."""
        await self.machine.run("sh", "-c", INSTALL, seconds=400)
        told = await self.machine.run(BUBBOT, "service", "install", "--system")
        assert "bubbot.service" in told
        assert await self.machine.property("bubbot", "ActiveState") == "active"

    async def hand_over(self) -> None:
        """The token as a credential; the service is ready when the platform is polled."""
        config = (
            f'[model]\nname = "scripted"\nscript = "{HOME}/script.json"\n[channels.telegram]\nowners = [{self.ada.id}]\n'
            f'debounce = 0.05\nbase_url = "{self.server.base_url}"\nbase_file_url = "{self.server.base_file_url}"\n'
        )
        for path, text in ((f"{HOME}/config.toml", config), (f"{HOME}/script.json", json.dumps(SCRIPT))):
            await self.machine.run(
                "install", "-o", "bubbot", "-g", "bubbot", "-m", "600", "/dev/stdin", path, data=text
            )
        await self.machine.run("install", "-d", "-m", "0700", "/etc/credstore")
        credential = "/etc/credstore/bubbot.channels.telegram.token"
        await self.machine.run("install", "-m", "0600", "/dev/stdin", credential, data=f"{self.server.bot.token}\n")
        await self.machine.run("systemctl", "restart", "bubbot")
        assert self.server.calls("getUpdates"), "it is started when it receives, not before"
        assert await self.machine.property("bubbot", "StatusText") == "receiving: telegram"

    async def answers(self, text: str) -> None:
        """The bot answers this."""
        self.room.say(text, self.ada)
        await self.said(f"You said: {text}")

    async def said(self, text: str) -> None:
        """Somebody is told this."""
        await self.server.until(lambda: text in self.server.transcript(times=False), 60)

    async def restarted_after(self, hurt: str, seconds: float) -> float:
        """Send the daemon a signal and wait until another process receives; the seconds that took."""
        before = await self.machine.property("bubbot", "MainPID")
        clock = asyncio.get_running_loop().time
        began = clock()
        await self.machine.run("systemctl", "kill", "--kill-whom=main", f"--signal=SIG{hurt}", "bubbot")
        restarts = int(await self.machine.property("bubbot", "NRestarts"))
        words = ("systemctl", "show", "bubbot", "--property=NRestarts", "--value")
        await self.machine.until(words, str(restarts + 1), seconds)
        await self.machine.until(("systemctl", "is-active", "bubbot"), "active\n", 60)
        await self.machine.until(("systemctl", "status", "bubbot"), "receiving: telegram", 60)
        assert await self.machine.property("bubbot", "MainPID") != before
        return clock() - began


@asynccontextmanager
async def walking(machine: Container) -> AsyncIterator[Walk]:
    """A person with a chat, and the platform."""
    async with Server(limits=None, conflict_pause=0.2, longest_poll=1.0) as server:
        yield Walk(machine, server)


@pytest.mark.proof
@mends("service.disabled", "service.changed", "service.differs", "service.unwatched", "service.failed")
async def test_the_page_about_services_holds_under_a_real_systemd(container: Container) -> None:
    async with walking(container) as walk:
        machine = walk.machine
        await walk.install()
        await walk.hand_over()
        await walk.answers("hello")
        await a_doctor_by_hand_knows_of_the_credential(walk)
        security = await machine.run("systemd-analyze", "security", "bubbot", "--no-pager")
        found = re.search(r"exposure level for bubbot\.service: ([\d.]+)", security)
        assert found
        assert float(found[1]) <= EXPOSURE, security
        print(f"exposure: {found[1]}")

        seconds = await walk.restarted_after("STOP", 3 * WATCHDOG_SECONDS)
        assert seconds >= WATCHDOG_SECONDS / 2
        assert "watchdog" in (await machine.journal("bubbot")).lower()
        print(f"seconds from SIGSTOP to receiving: {seconds:.1f}")
        await walk.answers("after the watchdog")
        print(f"seconds from SIGKILL to receiving: {await walk.restarted_after('KILL', 60):.1f}")
        await walk.answers("after the kill")
        await a_reload_takes_over_settings(walk)
        await a_stop_lets_the_turn_finish(walk)
        await the_timer_makes_backups(walk)
        await an_upgrade_keeps_the_old_unit_and_the_home(walk)
        await the_commands_of_the_doctor_mend_the_service(walk)
        await an_uninstall_leaves_the_home(walk)


async def a_doctor_by_hand_knows_of_the_credential(walk: Walk) -> None:
    """Whoever runs the doctor beside the service is not told that there is no token."""
    told = json.loads(await walk.machine.run(*AS_BOT, "doctor", "--json", check=False))
    ids = {one["id"] for one in told["findings"]}
    assert "channel.no_token" not in ids
    assert "platform.ok" in ids


async def a_reload_takes_over_settings(walk: Walk) -> None:
    machine = walk.machine
    await machine.run("sed", "-i", "s/^debounce = .*/debounce = 0.01/", f"{HOME}/config.toml")
    before = await machine.property("bubbot", "MainPID")
    await machine.run("systemctl", "reload", "bubbot")
    await machine.until(("journalctl", "-u", "bubbot", "-o", "cat", "--no-pager"), "action=config.loaded", 60)
    await machine.until(("systemctl", "is-active", "bubbot"), "active\n", 60)
    await walk.answers("after the reload")
    assert await machine.property("bubbot", "MainPID") == before


async def a_stop_lets_the_turn_finish(walk: Walk) -> None:
    accepted = len(walk.server.calls("sendChatAction"))
    walk.room.say("a slow one", walk.ada)
    await walk.server.until(lambda: len(walk.server.calls("sendChatAction")) > accepted, 60)
    await walk.machine.run("systemctl", "stop", "bubbot", seconds=120)
    assert "Slowly: a slow one" in walk.server.transcript(times=False)
    assert await walk.machine.property("bubbot", "Result") == "success"
    await walk.machine.run("systemctl", "start", "bubbot")
    await walk.answers("after the stop")


async def the_timer_makes_backups(walk: Walk) -> None:
    machine = walk.machine
    await machine.run(BUBBOT, "service", "install", "--system", "--backups")
    assert "bubbot-backup.timer" in await machine.run("systemctl", "list-timers", "--no-pager")
    await machine.run("systemctl", "start", "bubbot-backup.service")
    assert await machine.property("bubbot-backup.service", "Result") == "success"
    assert "bubbot-2" in await machine.run("ls", f"{HOME}/backups")


async def an_upgrade_keeps_the_old_unit_and_the_home(walk: Walk) -> None:
    machine = walk.machine
    unit = "/etc/systemd/system/bubbot.service"
    await machine.run("sed", "-i", "1i # of the version before", unit)
    await machine.run("sh", "-c", INSTALL, seconds=400)
    await machine.run(BUBBOT, "service", "install", "--system")
    await machine.run("systemctl", "restart", "bubbot")
    assert "# of the version before" in await machine.run("cat", f"{unit}.old1")
    assert "# of the version before" not in await machine.run("cat", unit)
    await walk.answers("after the upgrade")
    assert f"telegram:{walk.ada.id}" in await machine.run(*AS_BOT, "tape", "list")


async def the_commands_of_the_doctor_mend_the_service(walk: Walk) -> None:
    """Each fault of the service is planted, and the command that the doctor prints is run."""
    machine, unit, config = walk.machine, "/etc/systemd/system/bubbot.service", f"{HOME}/config.toml"
    programs = {"sudo": 'exec "$@"', "edited": "printf '[Service]\\nWatchdogSec=60\\n' > \"$1\""}
    for name, script in programs.items():  # the one who walks here is root
        await machine.run("install", "-m", "755", "/dev/stdin", f"/usr/local/bin/{name}", data=f"#!/bin/sh\n{script}\n")
    quiet = f"mkdir -p {unit}.d && printf '[Service]\\nWatchdogSec=0\\n' > {unit}.d/10-quiet.conf"
    broken = f"cp {config} /var/tmp/config && printf '[bot]\\nnmae = 1\\n' >> {config} && ! systemctl restart bubbot"
    for wanted, planted in (
        ("service.disabled", "systemctl disable bubbot"),
        ("service.changed", f"sed -i '1i # changed' {unit}"),
        ("service.differs", ":"),  # still
        ("service.unwatched", f"{quiet} && systemctl daemon-reload && systemctl restart bubbot"),
        (
            "service.failed",
            f"{broken}; until systemctl is-failed bubbot; do sleep 0.2; done; cat /var/tmp/config > {config}",
        ),
    ):
        await machine.run("sh", "-c", planted)
        fix = (await found_by_the_doctor(walk))[wanted]
        environment = ("env", "PATH=/opt/bubbot/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin", "SYSTEMD_EDITOR=edited")
        # An editor of units wants a terminal.
        await machine.run(*environment, "script", "--quiet", "--return", "--command", fix, "/dev/null")
        assert wanted not in await found_by_the_doctor(walk), fix
        note_mended(wanted)
    await machine.until(("systemctl", "status", "bubbot"), "receiving: telegram", 60)
    await walk.answers("after all that was mended")


async def found_by_the_doctor(walk: Walk) -> dict[str, str]:
    """The ids of what the doctor finds, each with its command."""
    told = json.loads(await walk.machine.run(*AS_BOT, "doctor", "--offline", "--json", check=False))
    return {one["id"]: one["fix"] for one in told["findings"]}


async def an_uninstall_leaves_the_home(walk: Walk) -> None:
    machine = walk.machine
    await machine.run(BUBBOT, "service", "uninstall", "--system")
    assert await machine.property("bubbot", "ActiveState") != "active"
    assert (
        await machine.run("ls", "/etc/systemd/system/bubbot.service", check=False)
        != "/etc/systemd/system/bubbot.service\n"
    )
    assert "bubbot.db" in await machine.run("ls", HOME)
