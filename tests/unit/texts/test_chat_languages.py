"""Both languages of what commands answer: a chat in Chinese gets no sentence in English, except from a model or a library."""

from __future__ import annotations

import re

import pytest

from bubbot.models.scripted import ScriptedModel
from bubbot.stores.inmemory import InMemoryStore
from bubbot.tape.entry import Kind
from bubbot.texts import Texts
from bubbot.texts.catalogue import list_languages
from tests.schedules import timed
from tests.turns import Options, Played, calls, running, says

CHINESE = Texts("zh")
CONVERSATION = (
    (",why", "No model has answered here yet.", "这里还没有模型回答过。"),
    (",anchors", '#N N-N-N N:N session/start: {"owner":"human"}', '#N N-N-N N:N session/start：{"owner":"human"}'),
    ("Likes rainn.", "It rains.", "It rains."),
    (
        ",why",
        (
            "turn first-N (entries N to N): answered, entry N\n"
            "step N (entry N): tool_calls, scripted, N tokens in, N out, cost unknown, N ms; shown entries N, "
            "N; request D\n"
            "step N (entry N): ok, scripted, N tokens in, N out, cost unknown, N ms; shown entries N, N, N, N; "
            "request D\n"
            "tool tape_info (entry N)\n"
            ",why yes prints the last request as bubbot made it"
        ),
        (
            "回合 first-N（条目 N 至 N）：已回答，回答是条目 N\n"
            "第 N 步（条目 N）：调用工具，scripted，输入 N 词元，输出 N 词元，费用未知，N 毫秒；展示的条目：N, "
            "N；请求 D\n"
            "第 N 步（条目 N）：完成，scripted，输入 N 词元，输出 N 词元，费用未知，N 毫秒；展示的条目：N, N, "
            "N, N；请求 D\n"
            "工具 tape_info（条目 N）\n"
            ",why yes 可显示 bubbot 生成的最后一个请求"
        ),
    ),
    (
        "again",
        "I could not answer this: down. (trace first-N)",
        "抱歉，这次未能回答：模型暂时不可用，请稍后再试（down）。（追踪号 first-N）",
    ),
    (
        ",why",
        (
            "turn first-N (entries N to N): failed, no answer\n"
            "step N (entry N): error, scripted, N tokens in, N out, cost unknown, N ms; shown entries N, N, N, "
            "N-N, N; request D\n"
            "  scripted failed after N ms: down\n"
            "error model_unavailable (entry N): down\n"
            ",why yes prints the last request as bubbot made it"
        ),
        (
            "回合 first-N（条目 N 至 N）：失败，没有回答\n"
            "第 N 步（条目 N）：出错，scripted，输入 N 词元，输出 N 词元，费用未知，N 毫秒；展示的条目：N, N, "
            "N, N-N, N；请求 D\n"
            "  scripted 在 N 毫秒后失败：down\n"
            "错误 model_unavailable（条目 N）：down\n"
            ",why yes 可显示 bubbot 生成的最后一个请求"
        ),
    ),
    (
        ",why zz zz",
        ',why: request is "zz zz", but must be yes or no. Type ,why [request] …, such as ,why',
        ",why：request 是“zz zz”，但应为 yes 或 no。请输入 ,why [request] …，例如 ,why",
    ),
    (
        ",why abcdef",
        "no turn on this tape has the trace abcdef; the log says in which session it was",
        "这条记录带上没有追踪号为 abcdef 的回合；日志中记有它属于哪个会话",
    ),
    (
        ",tape.info",
        ("entries: N, N-N-N N:N to N-N-N N:N\nlast anchor: session/start (#N), N entries since"),
        ("条目：N 个，N-N-N N:N 至 N-N-N N:N\n最近的锚点：session/start（#N），此后有 N 个条目"),
    ),
    (",memory.recall", "Memory is empty (version N, entry N).", "记忆是空的（版本 N，条目 N）。"),
    (
        ",memory.save Likes rain.",
        "Saved to long-term memory as version N (entry N).",
        "已保存到长期记忆：版本 N（条目 N）。",
    ),
    (
        ",memory.recall",
        ("From memory (version N, entry N), notes since N-N-N:\n\nLong-term memory:\nLikes rain."),
        ("记忆中的内容（版本 N，条目 N），笔记从 N-N-N 起：\n\n长期记忆：\nLikes rain."),
    ),
    (
        ",memory.recall snow",
        "There is nothing that contains 'snow' in memory (version N, entry N), notes since N-N-N.",
        "记忆中没有包含“snow”的内容（版本 N，条目 N），笔记从 N-N-N 起。",
    ),
    (
        ",memory.daily date=2020-01-01 content=Rain.",
        (
            "Added to the notes of N-N-N as version N (entry N). Notes are kept for N days: these go when old "
            "notes are next cleared away."
        ),
        "已添加到 N-N-N 的笔记：版本 N（条目 N）。笔记保留 N 天：这一条会在下次清理旧笔记时删除。",
    ),
    (
        ",memory.daily date=Friday content=x",
        "date: 'Friday' is not a date such as N-N-N",
        "date：“Friday”不是日期，应类似 N-N-N",
    ),
    (
        ",memory.daily date=2030-01-01 content=x",
        "date: N-N-N is more than N days ahead, and notes are not kept so far: schedule a reminder",
        "date：N-N-N 在 N 天以后，笔记不会保留到那时：请改用提醒",
    ),
    (
        ',memory.forget " "',
        "the text to forget is empty: give words of the line that is to go",
        "要忘记的文字为空：请输入要删除的那一行里的词",
    ),
    (
        ",memory.restore 99",
        "there is no memory version N; this tape has the versions N to N",
        "没有记忆版本 N；这条记录带上有版本 N 至 N",
    ),
    (
        ",memory.restore x",
        (
            ',memory.restore: version is "x", but must be a whole number. Type ,memory.restore <version> …, such '
            "as ,memory.restore N"
        ),
        (",memory.restore：version 是“x”，但应为整数。请输入 ,memory.restore <version> …，例如 ,memory.restore N"),
    ),
    (
        ",tape.info x y z",
        ',tape.info: I do not know what to do with "x y z". Type ,tape.info',
        ",tape.info：不明白“x y z”是什么意思。请输入 ,tape.info",
    ),
    (
        ",memory",
        (
            "Memory: version N, entry N.\n"
            "Long-term memory: N bytes in N line.\n"
            "Likes rain.\n"
            "Daily notes: N day (N-N-N), N bytes in N line.\n"
            "The prompt shows those of today and N days before; N days are kept.\n"
            "On the tape: the versions N to N; `,memory.restore N` brings one back.\n"
            "`,memory.recall` gives the text."
        ),
        (
            "记忆：版本 N，条目 N。\n"
            "长期记忆：N 行，共 N 字节。\n"
            "Likes rain.\n"
            "每日笔记：N 天（N-N-N），N 行，共 N 字节。\n"
            "提示中包含今天和此前 N 天的笔记；笔记保留 N 天。\n"
            "记录带上的版本：版本 N 至 N；`,memory.restore N` 可恢复其中一个。\n"
            "`,memory.recall` 可查看内容。"
        ),
    ),
    (
        ",search rain kinds=message since=2020-01-01 until=2030-01-01",
        (
            'Found N for "rain" on the whole tape from N-N-N until N-N-N (only message), whole words first:\n'
            "#N N-N-N N:N message: It rains.\n"
            "#N N-N-N N:N message: Ann (N): Likes rainn."
        ),
        (
            "找到 N 个与“rain”匹配的条目，范围：整条记录带，自 N-N-N 起，至 N-N-N 止（仅限 "
            "message），整词在前：\n"
            "#N N-N-N N:N message：It rains.\n"
            "#N N-N-N N:N message：Ann (N): Likes rainn."
        ),
    ),
    (",search gugu", 'Nothing found for "gugu" on the whole tape.', "没有找到“gugu”，范围：整条记录带。"),
    (',search " "', "query is empty: give the words to look for", "query 为空：请输入要查找的词"),
    (
        ",search x since=foo",
        "'foo' is not a date such as N-N-N or N-N-NTN:N",
        "“foo”不是日期，应类似 N-N-N 或 N-N-NTN:N",
    ),
    (
        ",search x since=2026-01-02 until=2026-01-01",
        "since (N-N-N) is after until (N-N-N)",
        "since（N-N-N）晚于 until（N-N-N）",
    ),
    (
        ",search x limit=1000",
        ",search: limit is N, but must be at most N. Type ,search <query> …, such as ,search passport",
        ",search：limit 是 N，但最多为 N。请输入 ,search <query> …，例如 ,search passport",
    ),
    (
        ",search x kinds=foo",
        (
            ',search: kinds is "foo", but must be message, tool_call, tool_result, anchor, event, system or '
            "error. Type ,search <query> …, such as ,search passport"
        ),
        (
            ",search：kinds 是“foo”，但应为 message、tool_call、tool_result、anchor、event、system 或 "
            "error。请输入 ,search <query> …，例如 ,search passport"
        ),
    ),
    (
        ",search",
        (",search: query is missing: words or a phrase. Type ,search <query> …, such as ,search passport"),
        ",search：缺少 query：词或短语。请输入 ,search <query> …，例如 ,search passport",
    ),
    (
        ",correct 999 x",
        "there is no entry N; this tape has entries N to N",
        "没有条目 N；这条记录带的条目编号为 N 至 N",
    ),
    (
        ",correct",
        (
            ",correct: entry is missing: the entry to correct; text is missing: what it should have said. Type "
            ",correct <entry> <text>, such as ,correct N The meeting is on Friday."
        ),
        (
            ",correct：缺少 entry：要更正的条目；缺少 text：更正后的内容。请输入 ,correct <entry> <text>，例如 "
            ",correct N The meeting is on Friday."
        ),
    ),
    (",resume 999", "there is no entry N; this tape has entries N to N", "没有条目 N；这条记录带的条目编号为 N 至 N"),
    (
        ",resume 3",
        "entry N is not an anchor that opens a window; ,anchors lists them",
        "条目 N 不是开启窗口的锚点；,anchors 可列出锚点",
    ),
    (
        ",resume nope",
        "there is no anchor nope that opens a window; ,anchors lists them",
        "没有名为 nope 且开启窗口的锚点；,anchors 可列出锚点",
    ),
    (
        ",resume 1",
        "Going on from session/start (entry N); a new window opens at entry N.",
        "从 session/start（条目 N）继续；新窗口始于条目 N。",
    ),
    (
        ",handoff",
        (
            ",handoff: name is missing: the new anchor's name, such as phase/design. Type ,handoff <name> "
            "[summary] …, such as ,handoff plan-done"
        ),
        (
            ",handoff：缺少 name：新锚点的名字，例如 phase/design。请输入 ,handoff <name> [summary] …，例如 "
            ",handoff plan-done"
        ),
    ),
    (
        ",handoff x source_ids=999",
        "handoff state: source_ids names entry N; this tape has entries N to N",
        "source_ids 中的条目 N 不存在；这条记录带的条目编号为 N 至 N",
    ),
    (
        ",handoff memory/x",
        "name is 'memory/x': names that begin with memory/ belong to the memory zone",
        "name 是“memory/x”：以 memory/ 开头的名字属于记忆区",
    ),
    (",handoff phase/x", "A new window opens at phase/x.", "已在 phase/x 开启新窗口。"),
    (
        ",anchors zones=yes",
        (
            '#N N-N-N N:N phase/x: {"owner":"human"}\n'
            '#N N-N-N N:N session/resume: {"owner":"human","parents":[N],"resumed":"session/start"} [parents: '
            "#N]\n"
            '#N N-N-N N:N memory/seal: {"version":N} (no new window)\n'
            '#N N-N-N N:N memory/open: {"version":N} (no new window)\n'
            '#N N-N-N N:N memory/seal: {"version":N} (no new window)\n'
            '#N N-N-N N:N memory/open: {"version":N} (no new window)\n'
            '#N N-N-N N:N memory/seal: {"version":N} (no new window)\n'
            '#N N-N-N N:N memory/open: {"version":N} (no new window)\n'
            '#N N-N-N N:N session/start: {"owner":"human"}'
        ),
        (
            '#N N-N-N N:N phase/x：{"owner":"human"}\n'
            '#N N-N-N N:N session/resume：{"owner":"human","parents":[N],"resumed":"session/start"}（承接 '
            "#N）\n"
            '#N N-N-N N:N memory/seal：{"version":N}（未开启新窗口）\n'
            '#N N-N-N N:N memory/open：{"version":N}（未开启新窗口）\n'
            '#N N-N-N N:N memory/seal：{"version":N}（未开启新窗口）\n'
            '#N N-N-N N:N memory/open：{"version":N}（未开启新窗口）\n'
            '#N N-N-N N:N memory/seal：{"version":N}（未开启新窗口）\n'
            '#N N-N-N N:N memory/open：{"version":N}（未开启新窗口）\n'
            '#N N-N-N N:N session/start：{"owner":"human"}'
        ),
    ),
    (
        ",anchors zones=perhaps",
        ',anchors: zones is "perhaps", but must be yes or no. Type ,anchors [zones], such as ,anchors',
        ",anchors：zones 是“perhaps”，但应为 yes 或 no。请输入 ,anchors [zones]，例如 ,anchors",
    ),
    (
        ",result.read x",
        "there is no result x; copy the handle from the cut result",
        "没有结果 x；请从被截断的结果中复制句柄",
    ),
    (",file.send a.txt", "give text or handle, one of the two", "请在 text 和 handle 中给出一个"),
    (
        ",file.send name=a.txt handle=x",
        "nothing is kept under x; copy the handle from the attachment or cut result",
        "没有 x 对应的内容；请从附件或被截断的结果中复制句柄",
    ),
    (
        ",nothingsuch",
        "There is no command ,nothingsuch. ,help all lists them all.",
        "没有 ,nothingsuch 这个命令。,help all 可列出全部命令。",
    ),
    (",serch", "There is no command ,serch. Did you mean ,search?", "没有 ,serch 这个命令。您是否想用 ,search？"),
    (
        ",help nothingsuch",
        "There is no command ,nothingsuch. ,help all lists them all.",
        "没有 ,nothingsuch 这个命令。,help all 可列出全部命令。",
    ),
    (
        ",help why",
        (
            ",why [request] [turn=…]\n"
            "Explain the last answer, or a turn by its trace, without asking a model: entries, tools, tokens, "
            "time.\n"
            "request: print the request of the last step\n"
            "turn: the turn to explain: its trace, which a failure tells\n"
            "Examples:\n"
            ",why\n"
            ",why NaNbNcNd\n"
            "For everybody who may speak here."
        ),
        (
            ",why [request] [turn=…]\n"
            "说明上一个回答的由来：看到的条目、使用的工具、用量和耗时\n"
            "request：显示最后一步的请求\n"
            "turn：要说明的回合：出错时给出的追踪号\n"
            "示例：\n"
            ",why\n"
            ",why NaNbNcNd\n"
            "在这里可以发言的人都可使用。"
        ),
    ),
)
"""What is typed, one after another, and the answers in English and Chinese: numbers as N, the digest of a request as D."""

SCHEDULES = (
    (
        ",remind me yesterday",
        "'yesterday' has passed already: say a time that is still to come, such as tomorrow at 9am",
        "“yesterday”已经过去：请写将来的时间，例如 明天上午9点",
    ),
    (",remind me", "say when, such as in 20 minutes or tomorrow at 9am", "请写明时间，例如 20分钟后 或 明天上午9点"),
    (
        ",remind tomorrow at 9 text=x catch_up=often",
        (
            ',remind: catch_up is "often", but must be skip, once or all. Type ,remind <when> …, '
            "such as ,remind at 18:00: call Ann"
        ),
        ",remind：catch_up 是“often”，但应为 skip、once 或 all。请输入 ,remind <when> …，例如 ,remind at 18:00: call Ann",
    ),
    (
        ",schedule.show",
        (
            ",schedule.show: job is missing: the job's id, its beginning, its name, or words of its text. Type ,schedule.show <job>, "
            "such as ,schedule.show a1b2"
        ),
        ",schedule.show：缺少 job：任务的编号、编号的开头、名称或内容中的词。请输入 ,schedule.show <job>，例如 ,schedule.show a1b2",
    ),
)
"""The same for schedules."""
ENGLISH_WORDS = re.compile(r"[a-z]+,? [a-z]+,? [a-z]+")


def without_numbers(text: str) -> str:
    return re.sub(r"\d+", "N", re.sub(r"\b[0-9a-f]{12}\b", "D", text))


@pytest.mark.parametrize(("language", "place"), [("en", 1), ("zh", 2)])
class TestAConversation:
    async def test_each_command_answers_in_the_language_of_the_chat(
        self, memory_store: InMemoryStore, language: str, place: int
    ) -> None:
        model = Played(calls("tape_info"), says("It rains."), {"error": "unavailable", "message": "down"})
        async with running(memory_store, model, Options(texts=Texts(language))) as bench:
            told = [(row[0], without_numbers((await bench.say(row[0])).text)) for row in CONVERSATION]
        assert told == [(row[0], row[place]) for row in CONVERSATION]

    async def test_a_schedule_is_refused_in_the_language_of_the_chat(
        self, memory_store: InMemoryStore, language: str, place: int
    ) -> None:
        async with timed(memory_store, ScriptedModel(), Options(texts=Texts(language)), keep=False) as bench:
            assert [(row[0], await bench.say(row[0])) for row in SCHEDULES] == [
                (row[0], row[place]) for row in SCHEDULES
            ]


@pytest.mark.parametrize("tag", [tag for tag in list_languages("bubbot.texts") if tag != "en"])
async def test_no_line_of_the_help_is_as_in_english(memory_store: InMemoryStore, tag: str) -> None:
    async with (
        running(memory_store, ScriptedModel(), Options(texts=Texts(tag))) as bench,
        running(InMemoryStore(), ScriptedModel(), Options()) as english,
    ):
        for asked in (",help", ",help all", *(f",help {tool.name}" for tool in bench.toolbox)):
            lines = [{*(await one.say(asked)).text.splitlines()} for one in (bench, english)]
            same = {line for line in lines[0] & lines[1] if line and (" – " in line or not line.startswith(","))}
            assert {line for line in same if not line.endswith(": ")} == set(), asked


class TestChinese:
    async def test_the_help_of_a_command_has_no_english(self, memory_store: InMemoryStore) -> None:
        async with running(memory_store, ScriptedModel(), Options(texts=CHINESE)) as bench:
            for tool in bench.toolbox:
                _, *told = (await bench.say(f",help {tool.name}")).text.partition("示例")[0].splitlines()
                assert [line for line in told if ENGLISH_WORDS.search(line)] == [], tool.name

    async def test_a_request_and_a_context_are_told_in_chinese(self, memory_store: InMemoryStore) -> None:
        async with running(memory_store, ScriptedModel(), Options(texts=CHINESE)) as bench:
            await bench.say("hello")
            assert (await bench.say(",why yes")).text.endswith(
                "\n[发给 scripted 的请求，尚未转换成服务商的格式，键已排序：与记录的请求逐字节一致]"
            )
            first, *_, last = (await bench.say(",context")).text.splitlines()
            assert re.fullmatch(r"系统提示词（\d+ 个字符）：", first)
            assert last.startswith("选择器 window，")

    async def test_hits_say_in_chinese_what_they_are(self, memory_store: InMemoryStore) -> None:
        async with running(memory_store, ScriptedModel(), Options(texts=CHINESE)) as bench:
            said = await bench.say("The volcano")
            (prompt,) = [entry.id for entry in said.merged_entries if entry.payload.get("role") == "user"]
            by = (await bench.say(f",correct {prompt} The valley")).text.removesuffix(" 更正。").split()[-1]
            told = (await bench.say(",search vulcano kinds=message")).text
            assert f"message（近似）（已由 #{by} 更正）：Ann (1): The volcano" in told

    async def test_the_model_gets_the_results_of_its_calls_in_english(self, memory_store: InMemoryStore) -> None:
        steps = (
            calls("tape_search", query="snow"),
            calls("memory_recall"),
            calls("tape_handoff", name=" "),
            says("ok"),
        )
        async with running(memory_store, Played(*steps), Options(texts=CHINESE)) as bench:
            result = await bench.say("hello")
            assert [
                entry.payload["results"][0]["content"]
                for entry in result.merged_entries
                if entry.kind == Kind.TOOL_RESULT
            ] == [
                'Nothing found for "snow" on the whole tape.',
                "Memory is empty (version 1, entry 5).",
                "name is empty: give the anchor a name such as phase/design",
            ]
