"""`bubbot doctor` as people run it: codes, JSON, no secret, nothing changed, nothing heavy loaded."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import re
import shutil
import sys
import tempfile
from pathlib import Path

import pytest

from bubbot.cli.main import main
from bubbot.home import Home, WriterLock
from bubbot.ports.checks import Finding
from tests.e2e import bot, forked
from tests.e2e.daemon import Daemon, configured, running
from tests.e2e.inside import logging_as_it_was, run, said
from tests.e2e.terminal import Terminal
from tests.e2e.test_control import until
from tests.e2e.test_status import WATCHED as HEALTH_PORT
from tests.e2e.test_status import Door, status
from tests.e2e.test_telegram import answered
from tests.fakes.botapi.errors import Refuse
from tests.fakes.botapi.gatherings import Gathering
from tests.fakes.botapi.server import Server
from tests.installed import installed
from tests.planting import found, mend_by_doctor, mends, plants

CANARY = "sk-canary-7f3a91"
STUB = "from pathlib import Path\nPath(__file__).with_name('imported').touch()\nraise ImportError('a trap')\n"


def findings(home: Path, *options: str, code: int = 0, **env: str) -> dict[str, dict[str, str]]:
    done = run(home, "doctor", "--json", *options, env=env)
    assert done.returncode == code, done.stdout.decode() + done.stderr.decode()
    return {one["id"]: one for one in json.loads(done.stdout)["findings"]}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    said(tmp_path / "home", "hello")
    return tmp_path / "home"


def _state(folder: Path) -> list[tuple[str, int, int]]:
    """The files of a home and their ages, without what SQLite makes for readers and what a daemon writes by itself."""
    own = ("-shm", "-wal", "errors", "search.db")
    files = [file for file in sorted(folder.rglob("*")) if not file.name.endswith(own)]
    return [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files]


def test_a_sound_home_is_said_to_be_sound_and_is_left_as_it_is(home: Path) -> None:
    before = _state(home)
    done = bot.run(home, "doctor", "--deep")
    assert done.returncode == 0, done.stdout.decode()
    first, *_, last = done.stdout.decode().splitlines()
    assert (count := re.fullmatch(r"(?:No problems: |0 problems, \d+ warnings?; )(\d+) checks passed\.", first))
    assert last == "bubbot doctor --all lists the checks that passed."
    passed = bot.run(home, "doctor", "--deep", "--all").stdout.decode().splitlines()
    assert sum(line.startswith("ok ") for line in passed) == int(count[1])
    assert any("every hash holds" in line for line in passed)
    assert _state(home) == before


def test_problems_come_first_then_warnings_and_colours_repeat_the_words(home: Path) -> None:
    home.chmod(0o755)
    env = {"BUBBOT_MODEL__NAME": "openai/gpt-4o"}
    lines = bot.run(home, "doctor", "--offline", env=env).stdout.decode().splitlines()
    assert re.fullmatch(r"1 problem, [1-9] warnings?; \d+ checks passed\.", lines[0])
    levels = [line.partition(" ")[0] for line in lines[1:-1] if line and not line.startswith(" ")]
    assert levels[0] == "problem"
    assert "ok" not in levels
    assert levels == sorted(levels)  # which is the order of their weight, too
    for variables, is_coloured in (({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)):
        with Terminal(
            home, "doctor", "--offline", first="lists the checks that passed.", script=None, **env, **variables
        ) as terminal:
            assert terminal.ended() == 1
        assert ("\x1b[1;31mproblem\x1b[0m" in terminal.sent) is is_coloured
        assert ("\x1b" in terminal.sent) is is_coloured
        assert "problem " in terminal.sent.replace("\x1b[0m", "")


def test_it_works_beside_a_running_bot_and_names_it(home: Path) -> None:
    with WriterLock(Home(home)):
        assert f"Process {os.getpid()} is writing" in findings(home)["lock.held"]["cause"]


async def test_it_works_beside_a_daemon_and_asks_its_platform(tmp_path: Path) -> None:
    """The real process beside another: nothing is taken from it, polled, or written to its home."""
    home = tmp_path / "home"
    async with Server() as server:
        configured(home, server, owners=[1])
        home.chmod(0o700)
        (home / "config.toml").chmod(0o600)
        async with running(home) as daemon:
            await daemon.quiet(server)
            asked = len(server.calls("getMe"))
            before = await asyncio.to_thread(_state, home)
            done = await asyncio.to_thread(bot.run, home, "doctor", "--deep", "--json")
            told = {one["id"]: one for one in json.loads(done.stdout)["findings"]}
            assert done.returncode == 0, told
            assert "[channels.telegram] is bubbot_bot" in told["platform.ok"]["cause"]
            assert {"lock.held", "database.ok", "delivery.ok", "disk.ok"} <= set(told)
            assert server.bot.token not in done.stdout.decode() + done.stderr.decode()
            assert len(server.calls("getMe")) == asked + 1
            assert await asyncio.to_thread(_state, home) == before
            await asyncio.to_thread(bot.run, home, "doctor", "--offline")
            assert len(server.calls("getMe")) == asked + 1
            ann = server.user("Ann")
            server.private(ann).say("hello", ann)
            await server.until(lambda: server.calls("sendMessage"))


def _others_may_read(folder: Path) -> bool:
    return all(one.stat().st_mode & 0o005 == 0o005 for one in (folder, *folder.parents))


@pytest.mark.skipif(os.getuid() != 0, reason="needs to become another user")
@plants("home.closed", "home.hidden", "config.closed")
@mends("config.closed")
def test_a_user_who_may_not_look_into_the_home_is_told_so(home: Path) -> None:
    folder = Path(tempfile.mkdtemp(prefix="bubbot-"))  # the folders of tmp_path are closed to other users
    try:
        folder.chmod(0o755)
        shutil.copytree(home, folder / "home")
        (folder / "home").chmod(0o700)
        places = {folder / "home": "home.closed", folder / "home" / "inner": "home.hidden"}
        # Everything is imported first: the other user may not be able to read the checkout.
        code = (
            "import os, sys, bubbot.cli.doctor; from bubbot.cli.main import main; from bubbot import plugins;"
            "[plugins.load('bubbot.channels', name) for name in plugins.list_names('bubbot.channels')];"
            "os.setgid(65534); os.setuid(65534);"
            "sys.exit(sum(main(['doctor', '--json', '--home', place]) for place in sys.argv[1:]))"
        )
        done = forked.run(
            forked.PROGRAM, [code, *map(str, places)], b"", env=bot.environment(folder / "none"), cwd=Path("/")
        )
        assert (done.returncode, done.stderr) == (2, b"")
        for line, (place, wanted) in zip(done.stdout.splitlines(), places.items(), strict=True):
            told = found(Finding(**one) for one in json.loads(line)["findings"])
            assert re.fullmatch(rf"sudo -u '#0' (/\S+/)?bubbot doctor --home {place}", told[wanted].fix)
            assert {"python.ok", "disk.ok", "config.closed"} <= set(told)
            assert "model.ok" in told or not _others_may_read(Path(sys.prefix))  # else no plugin can be found
            assert not [one for one in told if one.startswith(("database", "lock", "doctor"))]
            assert re.fullmatch(rf"sudo (/\S+/)?bubbot doctor --home {place}", told["config.closed"].fix)
            mend_by_doctor(told["config.closed"], folder)
    finally:
        shutil.rmtree(folder)


@plants("channel.down", "channel.troubled")
async def test_a_token_that_is_refused_later_is_shown_everywhere_until_the_bot_is_back(
    tmp_path: Path,
) -> None:
    home = tmp_path / "home"
    async with Server(limits=None, conflict_pause=0.1) as server:
        ada = server.user("Ada")
        configured(home, server, owners=[ada.id])
        async with running(home, env=HEALTH_PORT) as daemon:
            await _refused_and_back(home, server, server.private(ada), daemon)


async def _refused_and_back(home: Path, server: Server, room: Gathering, daemon: Daemon) -> None:
    await daemon.quiet(server)
    assert (await status(home, "--quiet"))[0] == 0
    server.fail("getUpdates", Refuse(401, "Unauthorized"), times=10**6)
    await server.until(lambda: "channel.doubted" in daemon.errors, 60)
    code, text = await status(home)
    assert (code, text.partition("\n")[0]) == (1, "Not answering: nothing is received from telegram.")
    assert "token was refused by Telegram (401)" in text
    code, told = await Door(daemon).get("/ready")
    assert (code, json.loads(told)["channels"]["telegram"]["state"]) == (503, "running")
    looked = await beside(home)
    assert "token was refused by Telegram (401)" in looked["channel.down"].cause
    server.faults.clear()
    room.say("still there?")
    await answered(server, room, "You said: still there?")
    assert (await status(home, "--quiet"))[0] == 0
    server.fail("getUpdates", Refuse(409, "Conflict: terminated by other getUpdates request"), times=2)
    await server.until(lambda: "second program" in daemon.errors, 60)
    await daemon.quiet(server)
    assert (await status(home, "--quiet"))[0] == 0
    assert "second program" in (await beside(home))["channel.troubled"].cause


@plants("database.replaced")
async def test_a_database_that_was_taken_away_is_shown_everywhere_until_it_is_back(tmp_path: Path) -> None:
    """Moved away, and then another in its place. What people write meanwhile is answered once it is back."""
    home, aside = tmp_path / "home", tmp_path / "aside.db"
    async with Server(limits=None, conflict_pause=0.1) as server:
        ada = server.user("Ada")
        room = server.private(ada)
        configured(home, server, owners=[ada.id], debounce=0, live=False)
        async with running(home, env=HEALTH_PORT) as daemon:
            room.say("before")
            await answered(server, room, "You said: before")
            await daemon.quiet(server)
            (home / "bubbot.db").rename(aside)
            room.say("meanwhile")
            await server.until(lambda: "store.replaced" in daemon.errors, 60)
            for is_other in (False, True):
                if is_other:
                    (home / "bubbot.db").write_bytes(aside.read_bytes())
                code, text = await status(home)
                # If this takes long, it adds that nothing is received, which is true.
                told = "Not answering: its database was removed or replaced: put it back, or restart the bot"
                assert (code, re.split("[;.]", text)[0]) == (1, told)
                code, told = await Door(daemon).get("/ready")
                answer = json.loads(told)
                # The channel, which cannot store what comes, starts again and again, and is not ready while it connects.
                assert {name: one["state"] for name, one in answer.pop("channels").items()} in (
                    {},
                    {"telegram": "running"},
                )
                assert (code, answer) == (503, {"ready": False, "database": "replaced"})
                looked = await beside(home)
                assert (looked["database.replaced"].level, "database.missing" in looked) == ("problem", False)
            aside.rename(home / "bubbot.db")
            await answered(server, room, "You said: meanwhile")
            assert (await status(home, "--quiet"))[0] == 0


@plants("plugin.failed")
async def test_a_feature_that_the_running_bot_has_left_out_is_named(home: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    installed(site, "odd_package", "1.0", "[bubbot.features]\nodd = odd_feature:FACTORY\n")
    code = "from bubbot.feature import FeatureFactory\nFACTORY = FeatureFactory('odd', lambda kernel, settings: 7)\n"
    (site / "odd_feature.py").write_text(code)
    async with running(home, env={"PYTHONPATH": str(site)}) as daemon:
        await asyncio.to_thread(until, lambda: "run.started" in daemon.errors)
        told = (await beside(home))["plugin.failed"]
    wanted = "The installed feature odd is left out in the running bot: TypeError: it is int, not a Feature."
    assert (told.level, told.cause) == ("warning", wanted)


async def beside(home: Path) -> dict[str, Finding]:
    """What `bubbot doctor` finds beside the bot."""
    done = await asyncio.to_thread(bot.run, home, "doctor", "--offline", "--json")
    return found(Finding(**one) for one in json.loads(done.stdout)["findings"])


def test_a_home_that_is_not_there_yet_is_a_warning_and_is_not_made(tmp_path: Path) -> None:
    assert findings(tmp_path / "new")["home.missing"]["fix"] == "bubbot chat"
    assert not (tmp_path / "new").exists()


def test_a_broken_configuration_is_a_problem_and_the_rest_is_looked_at(home: Path) -> None:
    (home / "config.toml").write_text('[model]\nnmae = "x"\n')
    told = findings(home, code=1)
    assert "did you mean 'name'" in told["config.invalid"]["cause"]
    assert told["database.ok"]["level"] == "ok"


def test_a_damaged_database_is_a_problem_with_a_way_out_that_works(home: Path, tmp_path: Path) -> None:
    for file in home.glob("bubbot.db*"):
        file.unlink()
    (home / "bubbot.db").write_bytes(b"x" * 9000)
    told = findings(home, code=1)["database.damaged"]
    assert os.system(told["fix"]) == 0
    assert (home / "damaged" / "bubbot.db").read_bytes() == b"x" * 9000
    assert "restore --empty" in findings(home, code=1)["database.lost"]["fix"]


def test_an_untested_litellm_is_found_and_never_imported(home: Path, tmp_path: Path) -> None:
    packages = tmp_path / "packages"
    info = packages / "litellm-1.82.7.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: litellm\nVersion: 1.82.7\n")
    (packages / "litellm.py").write_text(STUB)
    done = bot.run(home, "doctor", "--json", env={"PYTHONPATH": str(packages)})
    told = {one["id"]: one for one in json.loads(done.stdout)["findings"]}
    assert done.returncode == 0
    assert told["library.untested"]["fix"].startswith(f"{sys.executable} -m pip install 'litellm[mcp]==")
    assert not (packages / "imported").exists()


def test_no_secret_is_printed(home: Path) -> None:
    (home / "config.toml").write_text(f'[model]\nname = "{CANARY}/x"\napi_key = "{CANARY}"\n')
    for options in ((), ("--json",)):
        done = run(home, "doctor", *options, env={"BUBBOT_MODEL__NAME": f"{CANARY}/x"})
        assert done.returncode == 1
        assert CANARY.encode() not in done.stdout + done.stderr


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_a_name_that_no_terminal_can_show_is_escaped(tmp_path: Path, encoding: str) -> None:
    odd = tmp_path / "h\u202e \xfc"
    for options in ((), ("--json",)):
        shown = io.BytesIO()
        out = io.TextIOWrapper(shown, encoding=encoding, write_through=True)  # closes the bytes when it goes
        with contextlib.redirect_stdout(out), logging_as_it_was():
            assert main(["doctor", "--home", str(odd), *options]) in (0, 1)
        assert "\u202e" not in shown.getvalue().decode(encoding)
    assert json.loads(shown.getvalue())["home"] == str(odd)


def test_a_model_that_is_not_set_up_is_a_problem(home: Path) -> None:
    assert findings(home, code=1, BUBBOT_MODEL__NAME="nobody/x")["model.unknown"]["level"] == "problem"


WATCHED = """
import sys

def watch(event, arguments):
    if event == "open" and "bubbot.db" in str(arguments[0]):
        print("OPENED", arguments[0], file=sys.stderr)
    if event == "import" and arguments[0].partition(".")[0] == "litellm":
        print("IMPORTED litellm", file=sys.stderr)

sys.addaudithook(watch)
from bubbot.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


def test_nothing_but_sqlite_opens_the_database_and_nothing_loads_litellm(home: Path) -> None:
    program = [WATCHED, "doctor", "--deep"]
    watched = forked.run(forked.PROGRAM, program, b"", env=bot.environment(home), cwd=home.parent)
    assert (watched.returncode, watched.stderr) == (0, b"")
