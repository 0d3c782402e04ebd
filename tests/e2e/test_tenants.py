"""The page about tenants and auditors, walked on a PostgreSQL server: its commands, two bots, and an auditor who looks."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.e2e import bot
from tests.e2e.test_trace import GIVE_UP, Browser, sockets
from tests.postgres_server import SUPERUSER, own_server


@pytest.fixture
def owner() -> Iterator[str]:
    """The address of an empty database for its owner, on a server of its own: roles are those of a server."""
    with own_server() as server:
        with psycopg.connect(server.address(), autocommit=True) as conn:
            conn.execute("CREATE DATABASE bubbot")
        yield server.address("bubbot", SUPERUSER)


def fine(home: Path, *arguments: str, **env: str) -> str:
    done = bot.run(home, *arguments, env=env)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


def settled(home: Path, **keys: str) -> Path:
    """Write settings that name the server, and a page at a free port."""
    home.mkdir(exist_ok=True)
    lines = [f"{key} = {json.dumps(value)}" for key, value in keys.items()]
    (home / "config.toml").write_text("\n".join(["[trace]", "port = 0", "[store]", *lines]))
    return home


def test_tenants_see_nothing_of_each_other_and_an_auditor_sees_the_granted_chat_alone(
    tmp_path: Path, owner: str
) -> None:
    admin, found = tmp_path / "admin", {}
    admin.mkdir()
    for name in ("acme", "other"):
        told = json.loads(fine(admin, "store", "add-tenant", name, "--json", BUBBOT_STORE__URL=owner))
        assert (told["role"], told["key"]) == (f"bubbot_{name}", "url")
        found[name] = told["url"]
    again = fine(admin, "store", "add-tenant", "acme", BUBBOT_STORE__URL=owner)  # as after an upgrade
    assert again.endswith(f'[store]\nurl = "{found["acme"]}"\n')

    acme, other = (settled(tmp_path / name, url=url) for name, url in found.items())
    fine(acme, "ask", "--session", "ours", "the pine")
    fine(acme, "ask", "--session", "theirs", "the cellar")
    fine(other, "ask", "--session", "ours", "the oak")
    assert "the pine" in fine(acme, "tape", "export", "ours")
    assert "the pine" not in fine(other, "tape", "export", "ours")
    with (
        psycopg.connect(found["other"]) as conn,
        pytest.raises(psycopg.errors.InsufficientPrivilege, match="bubbot_acme"),
    ):
        conn.execute("SELECT * FROM bubbot_acme.entries")

    told = json.loads(fine(admin, "store", "add-auditor", "--tenant", "acme", "--json", BUBBOT_STORE__URL=owner))
    assert (told["role"], told["key"]) == ("bubbot_acme_audit", "audit_url")
    settled(acme, url=found["acme"], audit_url=told["url"])
    fine(acme, "access", "grant-audit", "ann", "stdin:ours")
    with sockets() as folder, bot.opened(acme, "run", XDG_RUNTIME_DIR=folder) as opened:
        port = next(part for line in opened.stderr if (part := re.findall(rb"pages.listening.*port=(\d+)", line)))[0]
        token = fine(acme, "trace", "--token", "ann").strip().rpartition("token=")[2]
        auditor = Browser()
        status, page = auditor.get(f"http://127.0.0.1:{port.decode()}/?token={token}")
        assert (status, "stdin:ours" in page, "stdin:theirs" in page) == (200, True, False)
        opened.process.terminate()
        assert opened.process.wait(GIVE_UP) == 0
