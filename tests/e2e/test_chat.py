"""The main job: people type, the bot answers, every word is a fact."""

from __future__ import annotations

import json
import os
import re
import time
from pathlib import Path

from tests.e2e import forked
from tests.e2e.bot import entries, environment, opened, run, said, sentence

SLOW = {"rules": [{"when": "slow", "steps": [{"delay": 30, "text": "late"}]}]}


def test_lines_of_a_pipe_are_answered_in_order_and_nothing_else_is_printed(tmp_path: Path) -> None:
    assert said(tmp_path / "home", "one", "two", "", "three") == ["You said: one", "You said: two", "You said: three"]


def test_a_last_line_without_a_line_feed_is_answered(tmp_path: Path) -> None:
    assert run(tmp_path / "home", "chat", lines=b"hi").stdout == b"You said: hi\n"


def test_commands_run_without_a_model_and_are_facts(tmp_path: Path) -> None:
    home = tmp_path / "home"
    printed = said(home, "hi", ",tape.info", ",nothing", "it's ,fine", env={"BUBBOT_MODEL__NAME": "scripted"})
    assert printed[1].startswith("entries: ")
    assert any(line.startswith("There is no command ,nothing") for line in printed)
    assert printed[-1] == "You said: it's ,fine"
    commands = [entry["payload"]["data"] for entry in entries(home) if _name(entry) == "command"]  # type: ignore[index]
    assert [(one["name"], one["status"]) for one in commands] == [("tape.info", "ok"), ("nothing", "refused")]


def _name(entry: dict[str, object]) -> object:
    payload = entry["payload"]
    return payload.get("name") if isinstance(payload, dict) else None


def test_quit_ends_the_chat_and_later_lines_are_not_read(tmp_path: Path) -> None:
    assert said(tmp_path / "home", "hi", ",quit", "more")[-1].startswith("Bye")


def test_what_was_said_is_there_in_the_next_process(tmp_path: Path) -> None:
    home = tmp_path / "home"
    said(home, "my name is Ada", ",memory.save Likes tea.")
    context = "\n".join(said(home, ",context"))
    assert "my name is Ada" in context
    assert "Likes tea." in context


def test_two_lifetimes_with_a_kill_in_mid_turn(tmp_path: Path) -> None:
    """Chat, memory, a handoff with a summary, kill -9 in mid-turn, restart: answered, remembered, intact."""
    home, script = tmp_path / "home", tmp_path / "slow.json"
    script.write_text(json.dumps(SLOW))
    said(home, "hello", ",memory.save The user is called Ada.", ',handoff phase/plan summary="We plan a trip."')
    with opened(home, "chat", BUBBOT_MODEL__SCRIPT=str(script)) as chat:
        chat.type("a slow question")
        _wait_for_open_fork(home)
        chat.process.kill()

    printed = said(home, ",context")
    assert printed[0] == "You said: a slow question"
    context = "\n".join(printed)
    assert "The user is called Ada." in context
    assert '[Anchor created: phase/plan]: {"summary":"We plan a trip.","owner":"human"}' in context
    assert run(home, "tape", "verify").returncode == 0


def _wait_for_open_fork(home: Path) -> None:
    """Until the message of the turn that is under way has been accepted and its fork is open."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        shown = run(home, "tape", "show", "bubbot/inbox/stdin", "--json").stdout
        if b"a slow question" in shown:
            time.sleep(0.3)  # the fork is opened right after the acceptance
            return
    raise AssertionError("the message was not accepted")


def test_ask_prints_one_answer(tmp_path: Path) -> None:
    done = run(tmp_path / "home", "ask", "hello there")
    assert (done.returncode, done.stdout) == (0, b"You said: hello there\n")


def test_ask_reads_standard_input_and_prints_json(tmp_path: Path) -> None:
    home = tmp_path / "home"
    done = run(home, "ask", "-", "--json", "--session", "work", lines="what now\n")
    answer = json.loads(done.stdout)
    assert (answer["session"], answer["status"], answer["text"]) == ("stdin:work", "answered", "You said: what now")
    ids = [entry["id"] for entry in entries(home, "stdin:work")]
    assert answer["entries"] == [ids[0], ids[-1]]


def test_ask_exits_with_1_where_the_turn_failed(tmp_path: Path) -> None:
    script = tmp_path / "broken.json"
    script.write_text(json.dumps({"default": [{"error": "unavailable", "message": "the provider is down"}]}))
    done = run(tmp_path / "home", "ask", "hello", env={"BUBBOT_MODEL__SCRIPT": str(script)})
    assert done.returncode == 1
    lines = [line for line in done.stderr.splitlines(keepends=True) if line.startswith(b"bubbot: ")]
    (line,) = lines
    told = re.fullmatch(rb"bubbot: I could not answer this: the provider is down\. \(trace ([0-9a-f]{8})\)\n", line)
    assert told, done.stderr
    assert done.stdout == b""
    home, trace = tmp_path / "home", told[1].decode()
    said(home, "something else")
    why = said(home, f",why {trace}")
    assert why[0].startswith(f"turn {trace}")
    assert why[-2].endswith("the provider is down")
    found = entries(home, "stdin:default", "--turn", trace)
    assert {str(entry["meta"]["turn"])[:8] for entry in found} == {trace}  # type: ignore[index]
    assert [entry["kind"] for entry in found if entry["kind"] == "error"] == ["error"]
    last = entries(home, "stdin:default", "--turn", trace, "--last", "2")
    assert last == found[-2:]


def test_the_log_names_the_turn_that_failed(tmp_path: Path) -> None:
    script = tmp_path / "broken.json"
    script.write_text(json.dumps({"default": [{"error": "unavailable", "message": "the provider is down"}]}))
    env = {"BUBBOT_MODEL__SCRIPT": str(script), "BUBBOT_LOG__LEVEL": "debug"}
    done = run(tmp_path / "home", "ask", "hello", env=env)
    (trace,) = re.findall(rb"trace ([0-9a-f]{8})", done.stderr)
    (line,) = [line for line in done.stderr.splitlines() if b"action=turn.failed" in line]
    assert b" turn=" + trace in line
    assert b"the provider is down" in line


def test_the_bot_speaks_the_language_of_its_settings(tmp_path: Path) -> None:
    script = tmp_path / "broken.json"
    script.write_text(json.dumps({"default": [{"error": "rate_limited", "message": "slow down"}]}))
    env = {"BUBBOT_MODEL__SCRIPT": str(script), "BUBBOT_BOT__LANGUAGE": "zh", "BUBBOT_LOG__LEVEL": "error"}
    printed = said(tmp_path / "home", "hello", ",nota", ",new", ",memory.save tea", ",help", ",quit", env=env)
    assert re.fullmatch(
        r"抱歉，这次未能回答：请求过于频繁，请稍后再试（slow down）。（追踪号 [0-9a-f]{8}）", printed[0]
    )
    assert printed[1] == "没有 ,nota 这个命令。,help all 可列出全部命令。"
    assert re.fullmatch(r"已开启新窗口（条目 \d+）。记忆保留；,resume 可回到之前的锚点。", printed[2])
    assert re.fullmatch(r"已保存到长期记忆：版本 2（条目 \d+）。", printed[3])
    assert ",new – 开始新的对话" in printed
    assert printed[-1] == "再见。对话已保存在记录带上。"


def test_sessions_do_not_see_each_other(tmp_path: Path) -> None:
    home = tmp_path / "home"
    run(home, "chat", "--session", "a", lines=["the secret is 42"])
    done = run(home, "chat", "--session", "b", lines=[",tape.search secret", ",context"])
    assert b"42" not in done.stdout


def test_an_answer_that_a_pipe_did_not_take_is_a_failure_and_not_the_next_scripts(tmp_path: Path) -> None:
    home = tmp_path / "home"
    read_end, write_end = os.pipe()
    os.close(read_end)
    with os.fdopen(write_end, "wb") as gone:
        done = forked.run(
            forked.BOT, ["chat"], b"are you there\n", env=environment(home), cwd=tmp_path, stdout=gone.fileno()
        )
    assert done.returncode == 1
    assert b"bubbot: The output could not be written: Broken pipe" in done.stderr
    assert said(home, "hello") == ["You said: hello"]
    told = [_name(entry) for entry in entries(home, "bubbot/outbox/stdin")]
    assert (told.count("outbox/intent"), told.count("outbox/receipt")) == (2, 1)
    assert "You said: are you there" in str(entries(home))


def test_an_open_chat_serves_a_second_one_and_commands_that_read_and_write(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with opened(home, "chat") as first:
        first.type("hello")
        assert first.stdout.readline() == b"You said: hello\n"
        assert b"stdin:default" in run(home, "tape", "list").stdout
        assert run(home, "tape", "verify").returncode == 0
        second = run(home, "chat", "--session", "other", lines=["hi"])
        assert (second.returncode, second.stdout) == (0, b"You said: hi\n")
        assert run(home, "memory", "save", "default", "Likes tea.").returncode == 0
        status = run(home, "status")
        assert status.returncode == 1
        assert f"Process {first.process.pid} is writing to this home but is not the daemon" in status.stdout.decode()
        assert "a chat is open" in sentence(run(home, "reload"))
        asked = run(home, "ask", "me too")
        assert asked.stdout == b"You said: me too\n"
        assert first.stdout.readline() == b"You said: me too\n"  # a copy: it is the same conversation


def test_archive_puts_a_tape_aside_and_it_can_be_read_and_verified(tmp_path: Path) -> None:
    home = tmp_path / "home"
    said(home, "remember the milk")
    name = run(home, "tape", "archive", "stdin:default").stdout.decode().strip()
    assert any("remember the milk" in str(entry) for entry in entries(home, name))
    assert not any("remember the milk" in str(entry) for entry in entries(home))
    assert run(home, "tape", "verify").returncode == 0


def test_verify_compares_with_a_kept_head_and_finds_an_altered_entry(tmp_path: Path) -> None:
    home = tmp_path / "home"
    said(home, "one")
    head = run(home, "tape", "verify").stdout.decode().split("head ")[1].strip()
    said(home, "two")
    assert run(home, "tape", "verify", "--head", head).returncode == 0
    wrong = head[:-1] + ("0" if head[-1] != "0" else "1")
    assert run(home, "tape", "verify", "--head", wrong).returncode == 5
    assert run(home, "tape", "verify", "--head", "nonsense").returncode != 0
