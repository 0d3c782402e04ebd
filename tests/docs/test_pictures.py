"""The pictures of the documentation show what the program prints now; `make pictures` draws them again."""

from __future__ import annotations

import re

import pytest
from rich.text import Text

from bubbot.models.local import model as local
from tests.docs.pages import ROOT, pages
from tests.docs.pictures.drawing import Bubble, draw_chat, draw_moving_chat, draw_recording, draw_screen, read_text
from tests.docs.pictures.samples import HOME, new_home, replace_varying
from tests.docs.pictures.scenes import FOLDER, SCENES, draw, file_of

WITH_DEMONSTRATION_MODEL = {"session", "chat", "init"}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.proof if name in WITH_DEMONSTRATION_MODEL else ()) for name in SCENES]
)
async def test_a_picture_has_the_words_of_the_program(name: str) -> None:
    if name in WITH_DEMONSTRATION_MODEL and not local.is_available():
        pytest.skip("the demonstration model is not installed")
    svg = await draw(name)
    assert read_text(file_of(name).read_text(encoding="utf-8")) == read_text(svg), "`make pictures` draws it again"


def test_every_picture_is_drawn_by_a_scene_and_shown_on_a_page() -> None:
    assert {file.name for file in FOLDER.glob("*.svg")} == {file_of(name).name for name in SCENES}
    shown = {found for page in pages() for found in re.findall(r"pictures/([\w-]+\.svg)", page.read_text("utf-8"))}
    assert shown == {file_of(name).name for name in SCENES}


def test_every_screenshot_is_shown_on_a_page_and_small() -> None:
    shown = {found for page in pages() for found in re.findall(r"pictures/([\w-]+\.png)", page.read_text("utf-8"))}
    others = [file for file in FOLDER.iterdir() if file.suffix != ".svg"]
    assert {file.name for file in others} == shown
    assert [file.name for file in others if file.stat().st_size > 200_000] == []


def test_no_picture_has_a_script_or_loads_anything() -> None:
    for file in FOLDER.glob("*.svg"):
        text = file.read_text(encoding="utf-8").replace('xmlns="http://www.w3.org/2000/svg"', "")
        text = re.sub(r"(?<=</)text|>[^<>]*</text", "", text)  # an address that is shown loads nothing
        assert not re.search(r"<script|\bon\w+=|href|https?://|@import|<image|<foreignObject", text), file.name


@pytest.mark.parametrize("words", [("one", "two"), ("a  b <c>", "磁带 & more")])
def test_the_text_of_a_picture_is_read_back(words: tuple[str, ...]) -> None:
    rows = [Text(word, style="bold") for word in words]
    assert read_text(draw_screen(rows, "title")) == ["title", *words]
    chat = draw_chat([Bubble("Ada", word, is_bot=False) for word in words], title="t", source="s", color="#fff")
    assert [word.replace("  ", " ") for word in words] == [
        row.replace("  ", " ") for row in read_text(chat) if row not in ("Ada", "t", "s")
    ]


def test_a_recording_shows_each_row_as_long_as_it_stays() -> None:
    svg = draw_recording([(1, [Text("kept"), Text("first")]), (3, [Text("kept"), Text("second")])], "title")
    assert read_text(svg) == ["title", "kept", "first", "second"]
    assert "25.000% { visibility: hidden; }" in svg
    assert "25.000% { visibility: visible; }" in svg


def test_a_moving_chat_shows_a_message_until_its_place_changes() -> None:
    first, second = Bubble("Ada", "one", is_bot=False), Bubble("Bubbot", "two", is_bot=True, buttons=("Yes", "No"))
    svg = draw_moving_chat([(1, [first]), (3, [first, second])], title="t", source="s", color="#fff", height=400)
    assert read_text(svg) == ["t", "s", "Ada", "one", "Bubbot", "two", "YesNo"]
    assert "25.000% { visibility: visible; }" in svg
    assert svg.count("state last") == 2, "who wants no motion sees both"
    low = draw_moving_chat([(1, [first]), (3, [first, second])], title="t", source="s", color="#fff", height=200)
    assert read_text(low).count("one") == 2, "it moves up if there is no room below"


def test_the_values_of_a_run_are_replaced_and_words_are_not() -> None:
    with new_home() as home:
        assert len(str(home)) == len(HOME)
        assert replace_varying(f"{home}/config.toml since 2031-01-02 03:04:05", home) == (
            f"{HOME}/config.toml since 2026-11-22 10:00:00"
        )
    assert replace_varying("(about 210 MB to download, once)", ROOT) == "(about 210 MB to download, once)"
