"""The bot's own sentences: every language has each of them, in the same form, and they are written nowhere else."""

from __future__ import annotations

import ast
import asyncio
import re
import shutil
import string
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from gettext import GNUTranslations
from io import BytesIO
from pathlib import Path
from typing import Any, get_args

import polib
import pytest
from msgspec import Meta, structs

from bubbot import errors
from bubbot.app.strategies import OWN_STRATEGIES
from bubbot.errors import (
    BubbotError,
    FeatureFailed,
    ModelCallsRefused,
    ModelEmptyAnswer,
    ModelError,
    ModelOverflow,
    ModelRateLimited,
    ModelRefused,
    ModelRepeatsCall,
    ModelStepLimit,
    ModelUnavailable,
    StrategyFailed,
    TapeCorrupt,
)
from bubbot.models.scripted import ScriptedModel
from bubbot.models.unconfigured import UnconfiguredModel
from bubbot.ports.channel import Role, UnparsedUpdate
from bubbot.ports.turn import AcceptedInbound, Status
from bubbot.runtime.messages import too_old_text
from bubbot.stores.inmemory import InMemoryStore
from bubbot.texts import Texts
from bubbot.texts.catalogue import find_areas, list_languages, read_catalogue
from bubbot.tool import HelpTopic, Tool
from tests.all_tools import all_tools
from tests.docs.pages import ROOT
from tests.turns import WAIT, Options, Played, calls, running, says
from tests.unit.runtime.test_recovery import Gate

PACKAGE = "bubbot.texts"
AREAS = sorted({*find_areas(PACKAGE).values()})
OTHERS = [tag for tag in list_languages(PACKAGE) if tag != "en"]
CHINESE = Texts("zh")
TABLES = ("brief.", "command.", "error.", "help.", "meaning.", "role.", "status.", "strategy.", "topic.")
"""Beginnings of names that the code puts together from what they are about."""


def placeholders(text: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(text) if name is not None}


def wanted(entry: Any) -> set[str]:
    """The placeholders of all forms of a sentence, and the number that chooses among them."""
    return placeholders(entry.singular) | placeholders(entry.plural) | ({"count"} if entry.plural else set())


def _english() -> dict[str, Any]:
    return {name: one for area in AREAS for name, one in read_catalogue(PACKAGE, area, "en").entries.items()}


ENGLISH = _english()
SENTENCES = {name: entry for name, entry in ENGLISH.items() if not name.startswith(TABLES)}


def _table(beginning: str) -> dict[str, str]:
    """The English of every name that begins so, by the rest of the name."""
    return {
        name.removeprefix(beginning): entry.singular for name, entry in ENGLISH.items() if name.startswith(beginning)
    }


def _template(area: str) -> polib.POFile:
    return polib.pofile(str(ROOT / "bubbot/texts" / f"{area}.pot"))


@cache
def _translation(tag: str, area: str) -> polib.POFile:
    return polib.pofile(str(ROOT / "bubbot/texts" / tag / f"{area}.po"))


def _forms(entry: polib.POEntry) -> list[str]:
    return list(entry.msgstr_plural.values()) if entry.msgid_plural else [entry.msgstr]


def _plural_forms(tag: str, area: str) -> int:
    return int(_translation(tag, area).metadata["Plural-Forms"].split("nplurals=")[1].split(";")[0])


def _forms_asked_for(tag: str, area: str) -> set[str]:
    """The forms that numbers ask for, by a sentence whose forms are told apart by their index."""
    forms = polib.POFile()
    forms.metadata = _translation(tag, area).metadata
    forms.append(polib.POEntry(msgid="one", msgid_plural="many", msgstr_plural={n: f"form {n}" for n in range(10)}))
    translations = GNUTranslations(BytesIO(forms.to_binary()))
    return {translations.ngettext("one", "many", number) for number in range(200)}


def list_translated_tools() -> list[Tool]:
    """The tools whose words are translated; nobody types those that are reserved."""
    return [each for each in all_tools() if not each.is_reserved]


class TestLanguages:
    @pytest.mark.parametrize("area", AREAS)
    def test_the_names_of_an_area_are_found_without_reading_the_rest(self, area: str) -> None:
        found = [name for name, place in find_areas(PACKAGE).items() if place == area]
        assert found == [*read_catalogue(PACKAGE, area, "en").entries]

    def test_the_wheel_has_every_catalogue(self) -> None:
        settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
        patterns = settings["tool"]["setuptools"]["package-data"]["bubbot"]
        packaged = {path for pattern in patterns for path in (ROOT / "bubbot").glob(pattern)}
        assert set((ROOT / "bubbot/texts").rglob("*.po*")) <= packaged

    def test_a_name_is_in_one_area_only(self) -> None:
        names = Counter(entry.msgctxt for area in AREAS for entry in _template(area))
        assert [name for name, times in names.items() if times > 1] == []

    @pytest.mark.parametrize("area", AREAS)
    def test_each_form_in_english_says_the_same_things(self, area: str) -> None:
        for name, entry in read_catalogue(PACKAGE, area, "en").entries.items():
            if entry.plural:
                left_out = [wanted(entry) - placeholders(form) - {"count"} for form in (entry.singular, entry.plural)]
                assert left_out == [set(), set()], name

    @pytest.mark.parametrize("tag", OTHERS)
    def test_a_language_can_be_chosen_by_the_name_of_its_folder(self, tag: str) -> None:
        assert Texts(tag).is_translated

    @pytest.mark.parametrize("tag", OTHERS)
    def test_a_language_has_every_area_and_no_other(self, tag: str) -> None:
        assert sorted(file.stem for file in (ROOT / "bubbot/texts" / tag).iterdir()) == AREAS

    @pytest.mark.parametrize("area", AREAS)
    @pytest.mark.parametrize("tag", OTHERS)
    def test_a_language_translates_every_sentence_as_its_english_is_now(self, tag: str, area: str) -> None:
        english = [(entry.msgctxt, entry.msgid, entry.msgid_plural) for entry in _template(area)]
        translation = _translation(tag, area)
        assert sorted((entry.msgctxt, entry.msgid, entry.msgid_plural) for entry in translation) == sorted(english)
        assert [entry.msgctxt for entry in translation if not all(_forms(entry)) or entry.fuzzy] == []

    @pytest.mark.parametrize("area", AREAS)
    @pytest.mark.parametrize("tag", OTHERS)
    def test_a_translation_has_the_placeholders_of_its_english(self, tag: str, area: str) -> None:
        for entry in _translation(tag, area):
            used = {name for form in _forms(entry) for name in placeholders(form)}
            every = wanted(ENGLISH[entry.msgctxt])
            assert used | ({"count"} & every) == every, entry.msgctxt
            assert [form for form in _forms(entry) if used - placeholders(form) - {"count"}] == [], entry.msgctxt

    @pytest.mark.parametrize("area", AREAS)
    @pytest.mark.parametrize("tag", OTHERS)
    def test_every_form_that_a_number_can_ask_for_is_there_and_every_form_is_asked_for(
        self, tag: str, area: str
    ) -> None:
        forms = range(_plural_forms(tag, area))
        assert _forms_asked_for(tag, area) == {f"form {number}" for number in forms}
        for entry in _translation(tag, area):
            assert not entry.msgid_plural or [*entry.msgstr_plural] == [*forms], entry.msgctxt

    def test_the_commands_of_the_bot_have_the_summary_that_is_translated(self) -> None:
        tools = list_translated_tools()
        assert _table("command.") == {one.name: one.summary for one in tools}

    def test_the_commands_of_the_bot_have_the_few_words_that_are_translated(self) -> None:
        tools = list_translated_tools()
        assert _table("brief.") == {one.name: one.help.brief for one in tools}

    def test_the_parts_of_the_list_of_commands_have_a_name(self) -> None:
        assert set(_table("topic.")) == set(HelpTopic)

    def test_the_roles_have_a_name(self) -> None:
        assert _table("role.") == {role.value: role.value for role in Role}

    def test_the_context_strategies_have_a_line(self) -> None:
        assert _table("strategy.") == {one.name: one.help for one in OWN_STRATEGIES.own}
        for texts in map(Texts, OTHERS):
            assert all(texts.strategy(one.name, one.help) != one.help for one in OWN_STRATEGIES.own)
        assert CHINESE.strategy("window", "what a package shows") == "what a package shows"

    def test_the_arguments_of_commands_have_the_meaning_that_is_translated(self) -> None:
        tools = list_translated_tools()
        meanings = {
            (one.name, name): field.description
            for one in tools
            for name, field in one.fields.items()
            if field.description
        }
        meanings |= {
            (one.name, f"{name}.form"): mark.extra["form"]
            for one in tools
            for name, field in one.fields.items()
            for mark in field.marks
            if isinstance(mark, Meta) and mark.extra
        }
        for texts in map(Texts, OTHERS):
            assert [at for at, meaning in meanings.items() if texts.meaning(*at, meaning) == meaning] == []
        assert set(_table("meaning.").values()) == set(meanings.values())

    def test_an_argument_of_a_package_keeps_its_own_meaning(self) -> None:
        assert CHINESE.meaning("tape.search", "query", "what to look for") == "what to look for"
        assert CHINESE.meaning("weather.show", "place", "as in ,weather.show") == "as in ,weather.show"

    def test_the_ends_of_turns_and_steps_have_a_name(self) -> None:
        steps = ("ok", "tool_calls", "auto_handoff", "error")
        assert _table("status.") == {status: status for status in (*get_args(Status), "interrupted", *steps)}

    def test_the_errors_of_models_and_installed_features_are_told_by_kind(self) -> None:
        kinds = {one.kind for one in vars(errors).values() if isinstance(one, type) and issubclass(one, ModelError)}
        assert set(_table("error.")) == kinds | {FeatureFailed.kind, StrategyFailed.kind}

    @pytest.mark.parametrize(
        "error",
        [
            ModelStepLimit(7),
            ModelRepeatsCall("tape_info"),
            ModelCallsRefused("tape_info", 3),
            ModelEmptyAnswer(),
            FeatureFailed("odd", "prompt: no"),
            StrategyFailed("odd", "fold: no"),
        ],
    )
    def test_an_error_is_translated_from_what_it_says_in_english(self, error: BubbotError) -> None:
        assert f"{_table('error.')[error.kind].format_map(vars(error))}." == str(error)

    def test_chinese_has_full_width_punctuation(self) -> None:
        entries = [entry for area in AREAS for entry in _translation("zh", area)]
        texts = [text for entry in entries if not entry.msgctxt.startswith("role.") for text in _forms(entry)]
        assert [
            text for text in texts for place, char in enumerate(text) if char in ",;:?!()" and _beside(text, place)
        ] == []
        assert [text for text in texts if text.endswith((".", "?", "!"))] == []

    def test_german_has_quotation_marks_of_its_own_says_du_and_has_no_english_left(self) -> None:
        forms = [
            (entry.msgctxt, form) for area in AREAS for entry in _translation("de", area) for form in _forms(entry)
        ]
        assert [name for name, form in forms if re.search("[„“”\"']", _QUOTED.sub("", form))] == []
        assert [name for name, form in forms if _POLITE.search(form)] == []
        assert [name for name, form in forms if _ENGLISH_WORD.search(_TYPED.sub("", form))] == []


def _beside(text: str, place: int) -> bool:
    """Whether the character before it is Chinese: a comma there is one of a sentence and not of a command."""
    return place > 0 and "\u4e00" <= text[place - 1] <= "\u9fff"


_QUOTED = re.compile(r"„[^„“]*“|`[^`]*`|'[^']*'|[=.] ?\"[^\"]*\"")
"""What stands in the quotation marks of German, in code, in a shell, or as it is in `config.toml`."""
_POLITE = re.compile(r"[^.:?!] (?:Sie|Ihnen|Ihr(?:e[mnrs]?)?)\b")
_ENGLISH_WORD = re.compile(r"\b(?:the|is|are|of|and|there|you|your|with|for|not|what|this|that|has|can|it|or|to|may)\b")
_TYPED = re.compile(r"`[^`]*`|\{[^}]*\}|,[a-z]+(?:\.[a-z]+)*(?: \S+ (?:of|to) \S+)?")
"""What people type, in a sentence: it is in English in every language."""

GREETINGS = """
msgid ""
msgstr ""
"Content-Type: text/plain; charset=UTF-8\\n"
"Plural-Forms: {forms};\\n"

msgctxt "sunny"
msgid "The sun shines in {{place!r}}."
msgstr "{sunny}"

msgctxt "rain"
msgid "{{count}} day of rain"
msgid_plural "{{count}} days of rain"
{rain}
"""


@pytest.fixture
def weather(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The name of an installed package with a catalogue of its own, half of it in Polish."""
    folder = tmp_path / "bubbot_weather"
    (folder / "pl").mkdir(parents=True)
    (folder / "no_language").mkdir()
    (folder / "__init__.py").touch()
    template = GREETINGS.format(forms="nplurals=2; plural=(n != 1)", sunny="", rain='msgstr[0] ""\nmsgstr[1] ""')
    polish = GREETINGS.format(
        forms="nplurals=3; plural=(n==1 ? 0 : n%10>=2 && n%10<=4 && (n%100<12 || n%100>14) ? 1 : 2)",
        sunny="",
        rain='msgstr[0] "{count} dzień deszczu"\nmsgstr[1] "{count} dni"\nmsgstr[2] "{count} dni deszczu"',
    )
    (folder / "forecast.pot").write_text(template, encoding="utf-8")
    (folder / "pl" / "forecast.po").write_text(polish, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    yield folder.name
    sys.modules.pop(folder.name, None)  # the next test has a package of the same name in another folder


class TestCatalogueOfAPackage:
    def test_an_installed_package_brings_its_own_areas_and_languages(self, weather: str) -> None:
        assert ({*find_areas(weather).values()}, list_languages(weather)) == ({"forecast"}, ["en", "pl"])
        assert Texts(package=weather).say("sunny", place="Łódź") == "The sun shines in 'Łódź'."
        assert not Texts("zh", weather).is_translated

    @pytest.mark.parametrize(("count", "said"), [(1, "1 dzień deszczu"), (3, "3 dni"), (5, "5 dni deszczu")])
    def test_the_catalogue_says_which_form_goes_with_a_number(self, weather: str, count: int, said: str) -> None:
        assert Texts("pl", weather).say("rain", count=count) == said

    @pytest.mark.parametrize("tag", ["pl", "zh", "no_language"])
    def test_what_nobody_translated_is_english(self, weather: str, tag: str) -> None:
        assert Texts(tag, weather).say("sunny", place="Oslo") == "The sun shines in 'Oslo'."

    def test_the_english_sentences_are_of_the_same_package(self, weather: str) -> None:
        assert Texts("pl", weather).english.say("rain", count=2) == "2 days of rain"

    def test_what_was_read_needs_no_file_any_more(self, weather: str, tmp_path: Path) -> None:
        texts = Texts("pl", weather)
        texts.read_all()
        shutil.rmtree(tmp_path / weather)
        assert texts.say("sunny", place="Łódź") == "The sun shines in 'Łódź'."
        assert texts.say("rain", count=3) == "3 dni"
        with pytest.raises(FileNotFoundError):
            Texts("pl", weather).say("rain", count=3)

    def test_an_unknown_sentence_and_a_missing_value_are_errors(self, weather: str) -> None:
        for name in ("stopped", "sunny", "rain"):
            with pytest.raises(KeyError):
                Texts(package=weather).say(name)


class TestTexts:
    @pytest.mark.parametrize(("count", "words"), [(0, "0 messages"), (1, "1 message"), (2, "2 messages"), (21, "21 m")])
    def test_english_has_a_singular_and_a_plural(self, count: int, words: str) -> None:
        assert Texts().say("taking_up", count=count).startswith(f"Answering what was left open: {words}")
        assert Texts().say("taking_up", count=1) == "Answering what was left open: 1 message."

    @pytest.mark.parametrize(
        ("tag", "number"), [("en", "1,234,567.89"), ("de", "1.234.567,89"), ("zh", "1,234,567.89")]
    )
    def test_a_number_has_the_marks_of_the_language(self, tag: str, number: str) -> None:
        assert Texts(tag).format_number(f"{1234567.89:,}") == number

    @pytest.mark.parametrize("tag", OTHERS)
    def test_the_example_of_a_number_is_that_number(self, tag: str) -> None:
        assert re.fullmatch(r"1[^\d]234[^\d]5", Texts(tag).say("number_example"))

    def test_chinese_has_one_form(self) -> None:
        assert CHINESE.say("taking_up", count=1) == "正在回答之前未处理的 1 条消息。"
        assert CHINESE.say("taking_up", count=2) == "正在回答之前未处理的 2 条消息。"

    def test_german_counts_as_english_does(self) -> None:
        assert Texts("de").say("days", count=1) == "1 Tag"
        assert [Texts("de").say("days", count=count) for count in (0, 2, 21)] == ["0 Tage", "2 Tage", "21 Tage"]

    @pytest.mark.parametrize(
        ("tag", "spoken"),
        [
            ("en", "Stopped."),
            ("en-GB", "Stopped."),
            ("zh-Hans-CN", "已停止。"),
            ("ZH", "已停止。"),
            ("de-AT", "Angehalten."),
        ],
    )
    def test_a_tag_with_a_region_is_its_language(self, tag: str, spoken: str) -> None:
        assert (Texts(tag).say("stopped"), Texts(tag).is_translated) == (spoken, True)

    def test_what_nobody_translated_is_english(self) -> None:
        assert (Texts("fr").say("stopped"), Texts("fr").is_translated) == ("Stopped.", False)

    def test_commands_are_written_as_they_are_typed_there(self) -> None:
        slashes = Texts().with_command_prefix("/")
        assert slashes.say("no_name") == "Type the name of a command, such as /help."
        assert slashes.format_commands("`,memory.save a,b`, 1,000; ,help, (,schedule.edit 3).") == (
            "`/memory_save a,b`, 1,000; /help, (/schedule_edit 3)."
        )
        assert slashes.with_command_prefix(",").say("no_name") == Texts().say("no_name")
        chinese = Texts("zh").with_command_prefix("/")
        assert chinese.say("no_command", command="/x") == "没有 /x 这个命令。/help all 可列出全部命令。"
        assert (
            slashes.say("no_command", command=",as typed") == "There is no command ,as typed. /help all lists them all."
        )

    def test_values_with_braces_are_values(self) -> None:
        assert (
            Texts().say("unparsed", reason="{count} {0}")
            == "I could not read that: {count} {0}. It was kept as it came."
        )

    @pytest.mark.parametrize(
        ("error", "english", "chinese"),
        [
            (ModelUnavailable("it is down."), "it is down", "模型暂时不可用，请稍后再试（it is down）"),
            (ModelRateLimited("slow", retry_after=3), "slow", "请求过于频繁，请稍后再试（slow）"),
            (ModelRefused("bad key"), "bad key", "模型服务拒绝了这次请求（bad key）"),
            (ModelOverflow("long"), "long", "内容超出了模型的长度限制，请用 ,new 开启新窗口后再试（long）"),
            (
                ModelStepLimit(7),
                "I stopped after 7 steps without an answer. ,retry lets me go on; [model] max_steps raises the limit",
                "已执行 7 步仍未得出答案。发送 ,retry 可让我继续；[model] max_steps 可提高上限",
            ),
            (
                ModelCallsRefused("shell_run", 3),
                "I stopped because 3 calls in a row were not allowed, the last one of shell_run. They were not run",
                "连续 3 次调用都不被允许，最后一次是 shell_run，我已停止；这些调用都没有执行",
            ),
            (
                ModelRepeatsCall("tape_info"),
                "I stopped because the model kept calling tape_info with the same arguments",
                "模型反复用相同的参数调用 tape_info，我已停止",
            ),
            (ModelEmptyAnswer(), "The model returned an empty answer", "模型返回了空的回答"),
            (TapeCorrupt("entry 3 of x"), "entry 3 of x", "entry 3 of x"),
        ],
    )
    def test_a_failure_is_told_with_its_reason_and_trace(self, error: BubbotError, english: str, chinese: str) -> None:
        turn = "1a2b3c4d5e6f"
        assert Texts().format_failure(error, turn) == f"I could not answer this: {english}. (trace 1a2b3c4d)"
        assert CHINESE.format_failure(error, turn) == f"抱歉，这次未能回答：{chinese}。（追踪号 1a2b3c4d）"


class TestInAChat:
    async def test_failures_and_commands_are_told_in_chinese(self, memory_store: InMemoryStore) -> None:
        options = Options(role=Role.MEMBER, texts=CHINESE)
        async with running(memory_store, Played({"error": "refused", "message": "no"}), options) as bench:
            result = await bench.say("hello")
            assert result.text == f"抱歉，这次未能回答：模型服务拒绝了这次请求（no）。（追踪号 {result.turn_id[:8]}）"
            assert (await bench.say(",reset")).text == ",reset 仅限所有者使用；您在这里的身份是成员。"
            assert (await bench.say(",modle")).text == "没有 ,modle 这个命令。您是否想用 ,model？"
            assert (await bench.say(",model")).text.startswith("当前由 scripted 回答。可选模型：scripted, other。")
            assert (await bench.say(",model other")).text == "只有所有者可以切换模型；您在这里的身份是成员"

    async def test_what_the_model_is_told_of_itself_stays_english(self, memory_store: InMemoryStore) -> None:
        async with (
            running(memory_store, Played(says("ok"))) as english,
            running(InMemoryStore(), Played(says("ok")), Options(texts=CHINESE)) as chinese,
        ):
            await english.say("hello")
            await chinese.say("hello")
            assert english.requests[0].system == chinese.requests[0].system
            assert english.requests[0].tools == chinese.requests[0].tools

    async def test_without_a_model(self, memory_store: InMemoryStore) -> None:
        options = Options(texts=CHINESE)
        async with running(memory_store, UnconfiguredModel(CHINESE), options) as bench:
            assert (await bench.say("hello")).text.startswith("尚未配置模型，")


class TestWithoutATurn:
    async def test_status_and_stop(self, memory_store: InMemoryStore) -> None:
        gate = Gate()
        options = Options(tools=[gate.tool()], texts=CHINESE)
        async with (
            running(memory_store, Played(calls("wait_here"), says("ok")), options) as bench,
            asyncio.timeout(WAIT),
        ):
            result = await bench.post("go")
            await gate.entered.wait()
            await bench.gate.receive(bench.inbound(",status"))
            (told,) = bench.channel.texts
            assert re.fullmatch(
                r"正在回答（正在运行 wait_here，已用 \d+ 秒）；没有其他消息在等待。发送 ,stop 可停止当前回答。", told
            )
            await bench.gate.receive(bench.inbound(",stop"))
            assert ((await result).status, (await result).text) == ("stopped", "已停止。")

    async def test_what_could_not_be_read(self, memory_store: InMemoryStore) -> None:
        async with running(memory_store, ScriptedModel(), Options(texts=CHINESE)) as bench:
            await bench.gate.receive(UnparsedUpdate("test", "u1", "home", b"\xff", "no text"))
            assert bench.channel.texts == ["无法读取这条消息：no text。原始内容已保留。"]

    @pytest.mark.parametrize(
        ("times", "told"),
        [
            (["2026-11-19T08:00:30+00:00"], "A message (2026-11-19 08:00 UTC) came too long ago to be answered now"),
            (
                ["2026-11-19T08:00:30+00:00", "2026-11-20T09:30:00+00:00"],
                "2 messages (2026-11-19 08:00 to 2026-11-20 09:30 UTC) came too long ago to be answered now",
            ),
        ],
    )
    async def test_what_came_too_long_ago(self, memory_store: InMemoryStore, times: list[str], told: str) -> None:
        async with running(memory_store, ScriptedModel()) as bench:
            batch = [
                AcceptedInbound(place, structs.replace(bench.inbound("hi"), time=time))
                for place, time in enumerate(times)
            ]
            assert too_old_text(Texts(), batch) == f"I was away. {told}; send it again if it still matters."


PLACES = ("runtime", "gateway")
NOT_FOR_PEOPLE = {
    "runtime/prompt.py": "the system prompt: the model reads it",
    "runtime/calls.py: this is the same call": "a tool result: the model reads it",
    "runtime/calls.py: was not run: a call before it": "a tool result: the model reads it",
    "runtime/calls.py: [cut:": "the pointer in a result that was cut: the model follows it",
    "runtime/request_rules.py": "in the place of what a model does not take: the model reads it",
    "runtime/thoughts.py": "the marks of thoughts, in patterns",
    "runtime/answer.py": "what nobody can see, in patterns",
    "runtime/compose.py: its bytes are gone": "in the place of an image: the model reads it",
    "runtime/rerun.py: not recorded": "a tool result: the model reads it",
    "runtime/attachments.py": "why a file was not taken in: for the model, and as the detail of a notice",
    "gateway/admission.py: no numeric id": "a word for the log",
    "gateway/admission.py: not addressed": "a word for the log",
    "gateway/limits.py: not taken": "in the place of a file: the model reads it",
    "gateway/manager.py: the channel": "a name for the log",
    "gateway/quarantine.py": "a finding of the doctor, for the operator",
    "gateway/metrics.py": "what numbers are, for whoever collects them",
    "gateway/inbound.py: bytes of an unknown sender": "why something was not read: for the tape and the log",
}
"""Sentences that stay where they are, by file, or file and a part of the text, with the reason."""


def _files() -> list[Path]:
    package = ROOT / "bubbot"
    found = [
        path
        for place in PLACES
        for path in ((package / place).rglob("*.py") if "." not in place else [package / place])
    ]
    return sorted(path for path in found if "context" not in path.parts)  # that is what the model is shown


def sentences(tree: ast.Module) -> Iterator[str]:
    """Texts of two words or more that are no docstrings, log messages or errors. Errors are told by their kind; but
    one of a command is its answer."""
    skipped: set[int] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Expr(value=ast.Constant()):
                skipped |= {id(inner) for inner in ast.walk(node)}
            case ast.Call(func=ast.Attribute(value=ast.Name(id="log"))):
                skipped |= {id(inner) for inner in ast.walk(node)}
            case ast.Raise(exc=ast.Call(func=ast.Name(id=name))) if name != "CommandError":
                skipped |= {id(inner) for inner in ast.walk(node)}
            case ast.JoinedStr():
                skipped |= {id(inner) for inner in node.values}
    for node in ast.walk(tree):
        if id(node) not in skipped and isinstance(node, ast.Constant | ast.JoinedStr):
            text = _text(node)
            if sum(word.strip(".,;:()[]`").isalpha() for word in text.split()) >= 2 or any(c >= "\u4e00" for c in text):
                yield text


def _text(node: ast.Constant | ast.JoinedStr) -> str:
    parts = node.values if isinstance(node, ast.JoinedStr) else [node]
    return "".join(
        str(part.value) if isinstance(part, ast.Constant) and isinstance(part.value, str) else " {} " for part in parts
    )


BUILT = (
    "mcp_state_",
    "skill_file_",
    "skill_source_",
    "skill_status_",
    "branch_mark_",
    "branch_effect_",
    "trace_file_",
    "trace_origin_",
    "panel.",
    "argument_",
    "access_audience_",
    "access_group_",
    "code_",
    "group_audience_",
    "group_button_",
    "cron_",
    "w_",
    "weekday_",
    "month_",
    "state_",
    "do_",
    "h_",
    "zone_",
    "part_",
    "why_left_",
    "why_view_",
    "why_refused_",
    "why_skipped_",
    "link_",
    "approval_",
    "why_row_",
    "why_call_",
    "trace_from_",
    "trace_kind_",
    "trace_none_",
    "consent_button_",
    "person_group_",
    "person_line_",
    "person_reason_",
    "purpose_",
    "task_status_",
)
"""Beginnings of names that are put together where they are said; tests/unit/features/schedule/test_formatter.py and
tests/unit/runtime/test_argument_errors.py say them all,
tests/unit/features/memory/test_shared_zone.py, tests/unit/features/access/test_links.py and
tests/unit/features/approvals/test_sentences.py and tests/unit/features/people theirs, tests/unit/features/trace/test_templates.py those of the trace page."""


def _results() -> set[str]:
    """The names of the classes of results, which begin the names of their sentences."""
    return {name for text in _sources().values() for name in re.findall(r"^class (\w+)\(Struct", text, re.MULTILINE)}


def _spelt() -> set[str]:
    """Every word of the source that stands in quotes; no syntax tree is needed for that."""
    return {
        word
        for path, text in (*_sources().items(), *_templates())
        if path.parent.name != "texts"
        for word in re.findall(r"""["']([\w.-]+)["']""", text)
    }


@cache
def _sources() -> Mapping[Path, str]:
    return {path: path.read_text(encoding="utf-8") for path in sorted((ROOT / "bubbot").rglob("*.py"))}


def _templates() -> Iterator[tuple[Path, str]]:
    """Templates of pages, which say sentences too."""
    return ((path, path.read_text(encoding="utf-8")) for path in sorted((ROOT / "bubbot").rglob("templates/*.html")))


def _speaking_nodes() -> Iterator[tuple[Path, ast.AST]]:
    """Every node of the files that say sentences, with its file."""
    for path, text in _sources().items():
        if ".say" in text or "TimeRefused" in text:
            for node in ast.walk(ast.parse(text)):
                yield path, node


@cache
def _used() -> Sequence[tuple[str, str, set[str]]]:
    """Place, name and values of every sentence that is said in the source."""
    return [*_find_used()]


def _find_used() -> Iterator[tuple[str, str, set[str]]]:
    for path, node in _speaking_nodes():
        called = node.func if isinstance(node, ast.Call) else None
        said = isinstance(called, ast.Attribute) and called.attr == "say"
        if isinstance(node, ast.Call) and (said or (isinstance(called, ast.Name) and called.id == "TimeRefused")):
            if not node.args:
                continue
            place = f"{path.relative_to(ROOT).as_posix()}:{node.lineno}"
            name = node.args[0]
            for either in (name.body, name.orelse) if isinstance(name, ast.IfExp) else (name,):
                if isinstance(either, ast.Constant):
                    yield place, str(either.value), {str(one.arg) for one in node.keywords}


class TestTheSource:
    def test_every_sentence_is_said_with_the_values_it_needs_and_no_other(self) -> None:
        wrong = [
            f"{place}: {name}"
            for place, name, values in _used()
            if name not in SENTENCES or wanted(SENTENCES[name]) != values
        ]
        assert wrong == []

    def test_no_sentence_is_unused(self) -> None:
        used = {name for _, name, _ in _used()} | _spelt()
        unused = {name for name in SENTENCES if name.partition("@")[0] not in used and not name.startswith(BUILT)}
        assert sorted(name for name in unused if re.split("[.@]", name)[0] not in _results()) == []

    def test_sentences_for_people_are_written_nowhere_else(self) -> None:
        found = [
            f"{path.relative_to(ROOT / 'bubbot').as_posix()}: {text}"
            for path in _files()
            for text in sentences(ast.parse(path.read_text(encoding="utf-8")))
        ]
        assert [one for one in found if not _excused(one)] == []
        unneeded = [key for key in NOT_FOR_PEOPLE if not any(_excuses(key, one) for one in found)]
        assert unneeded == []

    @pytest.mark.parametrize(
        ("code", "seen"),
        [
            ("x = 'you are not allowed here'", True),
            ("x = f'{name} is not allowed here'", True),
            ("raise CommandError('there is no command')", True),
            ("x = '不可以'", True),
            ("log.info('a turn has failed')", False),
            ("raise ModelError('there is no model')", False),
            ("'''The docstring of it.'''", False),
            ("x = 'turn/start'", False),
        ],
    )
    def test_the_check_sees_what_it_should(self, code: str, seen: bool) -> None:
        assert bool(list(sentences(ast.parse(code)))) is seen


def _excuses(key: str, found: str) -> bool:
    file, colon, part = key.partition(": ")
    return found.startswith(f"{file}: ") and (not colon or part in found)


def _excused(found: str) -> bool:
    return any(_excuses(key, found) for key in NOT_FOR_PEOPLE)


TOLD_A_MODEL = {"BackgroundProgram.started", "shell_too_many", "WebPage.moved", "WebPage.image"}
"""The results of tools that a model calls: it knows the tools by their names."""


@pytest.mark.parametrize("tag", OTHERS)
def test_a_command_is_named_as_it_is_typed(tag: str) -> None:
    """With the comma, which also becomes the slash of a platform."""
    names = sorted({tool.name for tool in list_translated_tools() if "." in tool.name}, key=len, reverse=True)
    bare = re.compile(rf"(?<![\w,./])(?:{'|'.join(map(re.escape, names))})(?![\w.])")
    sentences = {
        entry.msgctxt: " ".join((entry.msgid, entry.msgid_plural, *_forms(translated)))
        for area in AREAS
        for entry in _template(area)
        if (translated := _translation(tag, area).find(entry.msgid, msgctxt=entry.msgctxt)) is not None
    }
    assert {
        name
        for name, text in sentences.items()
        if bare.search(text) and not name.startswith(("command.", "help.", "meaning."))  # also for the model
    } == TOLD_A_MODEL
