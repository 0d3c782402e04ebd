"""`bubbot context compare` and its comma command, in a real home."""

from __future__ import annotations

import json
from pathlib import Path

from tests.e2e import inside


def test_it_compares_a_real_chat_in_the_shell_and_in_the_chat(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "config.toml").write_text(
        '[model]\nname = "scripted"\n[budget.models.scripted]\ninput_price = 1000.0\noutput_price = 1000.0\n'
    )
    assert inside.run(home, "context", "compare").returncode == 4
    inside.said(home, "hello", "again")
    shown = inside.run(home, "context", "compare")
    assert (shown.returncode, shown.stderr) == (0, b"")
    table = shown.stdout.decode()
    assert {line.split()[0] for line in table.splitlines()} >= {"window", "compact", "full", "from:session/start"}
    data = json.loads(inside.run(home, "context", "compare", "--json").stdout)
    row = next(item for item in data["strategies"] if item["selector"] == "compact")
    assert row["cost"] == row["tokens"] / 1000
    assert f"{row['cost']:.6f}" in table
    answer = "\n".join(inside.said(home, ",context.compare"))
    assert "compact" in answer
    assert inside.run(home, "context", "compare", "telegram:9").returncode == 1
