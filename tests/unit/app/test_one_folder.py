"""A feature is one folder and one line: one that is put in works on every surface, and one that is taken out is missed by nobody."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.request import HTTPCookieProcessor, build_opener

import pytest

ROOT = Path(__file__).parents[3]
PLANTS = ROOT / "tests" / "data" / "plants"
CALL = {"calls": [{"name": "plants_water", "arguments": {"plant": "palm", "litres": 3}}]}


class Copy:
    """A copy of bubbot, with other features."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.home = folder, folder / "home"
        for name in ("bubbot", "channels", "tests/docs", "tests/__init__.py"):
            source, target = ROOT / name, folder / name
            if source.is_dir():
                shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
            elif source.exists():
                shutil.copy(source, target)
        self.home.mkdir()

    @property
    def list(self) -> Path:
        return self.folder / "bubbot" / "app" / "own_features.py"

    def edit(self, old: str, new: str) -> None:
        text = self.list.read_text(encoding="utf-8")
        assert old in text
        self.list.write_text(text.replace(old, new), encoding="utf-8")

    @property
    def environment(self) -> dict[str, str]:
        ours = {"BUBBOT_MODEL__NAME": "scripted", "BUBBOT_HOME": str(self.home), "PYTHONPATH": str(self.folder)}
        return {**os.environ, **ours}

    def run(self, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", *words],
            cwd=self.folder, env=self.environment | environment, capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip

    def bubbot(self, *words: str, **environment: str) -> str:
        done = self.run("bubbot", *words, **environment)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def trace_page(self, path: str) -> str:
        """A page of the trace page, as a browser gets it."""
        command = [sys.executable, "-m", "bubbot", "trace", "--no-browser"]
        with subprocess.Popen(
            command, cwd=self.folder, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as server:
            try:
                assert server.stdout is not None
                address, _, token = server.stdout.readline().strip().partition("/?token=")
                browser = build_opener(HTTPCookieProcessor())
                browser.open(f"{address}/?token={token}", timeout=60).read()
                page: bytes = browser.open(f"{address}/{path}", timeout=60).read()
            finally:
                server.terminate()
        return page.decode()


@pytest.fixture
def copy(tmp_path: Path) -> Copy:
    """A copy of bubbot as it is."""
    return Copy(tmp_path)


def test_a_feature_that_is_put_in_works_on_every_surface(copy: Copy) -> None:
    shutil.copytree(PLANTS, copy.folder / "bubbot" / "features" / "plants")
    copy.edit('"config", "approvals",', '"config", "plants", "approvals",')
    table = copy.run("tests.docs.command_table")
    assert table.returncode == 0, table.stderr
    assert "water plants, and see which got water" in copy.bubbot("--help")
    (copy.home / "config.toml").write_text("[plants]\nlitres = 0.25\n")
    assert "fern: 0.25 l" in copy.bubbot("ask", ",water fern")
    assert "ivy: 2 l" in copy.bubbot("plants", "water", "ivy", "--litres", "2")
    listed = json.loads(copy.bubbot("plants", "list", "--json"))["plants"]
    assert [(row["plant"], row["litres"]) for row in listed] == [("fern", 0.25), ("ivy", 2.0)]
    assert "fern: 0.25 l" in copy.bubbot("ask", ",plants")
    assert "Water a plant" in copy.bubbot("ask", ",help all")
    script = copy.home / "script.json"
    script.write_text(json.dumps({"default": [CALL, {"text": "Done."}]}))
    assert copy.bubbot("ask", "please water the palm", BUBBOT_MODEL__SCRIPT=str(script)).strip() == "Done."
    assert "<bdi>palm</bdi>: 3.0 l" in copy.trace_page("panel/garden")
    (copy.home / "config.toml").write_text("[plants]\nlitre = 1\n")
    refused = copy.run("bubbot", "ask", "hello")
    assert refused.returncode == 2
    assert "[plants] litre is not a setting; did you mean 'litres'?" in refused.stderr


def test_features_that_are_taken_out_are_missed_by_nobody(copy: Copy) -> None:
    for name in ("otel", "explain"):
        shutil.rmtree(copy.folder / "bubbot" / "features" / name)
        copy.edit(f'"{name}", ', "")
    table = copy.run("tests.docs.command_table")
    assert table.returncode == 0, table.stderr
    assert "\n  explain " not in copy.bubbot("--help")
    assert copy.bubbot("ask", "hello").strip() == "You said: hello"
