"""What happens to the recorded bot: every act is one that people, platforms or owners do."""

from __future__ import annotations

from contextlib import suppress
from itertools import count

from bubbot.errors import ConfigError, DeliveryFailed, ModelRefused
from bubbot.ports.channel import (
    Attachment,
    BotAdded,
    ButtonPress,
    ChatMigration,
    Deletion,
    Edit,
    MessagePart,
    Quote,
    Reaction,
    Sender,
    UnparsedUpdate,
)
from tests.golden.stage import OTHER_MODEL, SETTINGS, Gate, Stage
from tests.isolation.model import please

OWNER, MEMBER, OTHER, GROUP, ELSEWHERE = "tg:1", "tg:5", "tg:7", "tg:-8", "dc:15"
CARD = r"Approval \**([2-9A-Z]{5})"


async def change_access(stage: Stage) -> None:
    """Let strangers in and out, link accounts, and let chats and auditors read."""
    await stage.say("tg:21", "May I talk?")
    code = stage.find(r"[2-9A-Z]{8}")
    await stage.say("tg:21", "And now?")
    await stage.say(OWNER, ",access.approve AAAAAAAA")
    await stage.say(OWNER, f",access.approve {code} member")
    await stage.say(OWNER, f",access.approve {code} member")
    await stage.say("tg:22", "May I, too?")
    await stage.say(OWNER, ",access.decline 22 channel=tg")
    await stage.say(OWNER, ",access.grant 23 member channel=tg")
    await stage.say("dc:11", ",access.grant 24 admin")
    await stage.say(OWNER, ",access.revoke 23 channel=tg")
    added = Sender("1", "Person 1")
    await stage.receive(BotAdded("tg", stage.external(), "-31", added, stage.time(), chat_title="The garden"))
    await stage.say("tg:-31", "hello all", "1", chat_title="The garden")
    await stage.say("tg:-31", ",access.group -31 everybody", "1")
    await stage.say(OWNER, ",access.group -31 everybody channel=tg")
    await stage.say(OWNER, ",access.group -31 known channel=tg")
    await stage.say("tg:-31", "hello again", "1", chat_title="The garden")
    await stage.say(OWNER, f",grant {OTHER} to {MEMBER}")
    await stage.say(OWNER, f",grant {OWNER} to {MEMBER}")
    await stage.say(OWNER, f",grant.revoke {OWNER} to {MEMBER}")
    await stage.say(OWNER, f",audit anna of {MEMBER}")
    await stage.say(OWNER, f",audit tg:7 of {MEMBER}")
    await stage.say(OWNER, f",audit.revoke tg:7 of {MEMBER}")
    for answer in ("no", "yes"):
        await stage.say(MEMBER, ",link")
        code = stage.find(r"[2-9A-Z]{8}")
        await stage.say(ELSEWHERE, f",link {code}")
        await stage.say(MEMBER, f",link {answer}")
    await stage.say(OTHER, ",link")
    await stage.say(OWNER, f",link {stage.find(r'[2-9A-Z]{8}')}")
    await stage.say(OTHER, ",link yes")
    await stage.say(OWNER, ",unlink")


async def change_memory(stage: Stage) -> None:
    """Let people and the model keep, forget and restore what they know."""
    for chat in (OWNER, MEMBER):
        for scope in ("chat", "user", "workspace"):
            await stage.say(chat, f",memory.save scope={scope} Likes tea. Ä {scope}")
            await stage.say(chat, please("memory_save", content=f"Likes tea. Ä {scope}\nLikes rain", scope=scope))
            await stage.say(chat, f",memory.daily scope={scope} Bought tea")
            await stage.say(chat, f",memory.daily scope={scope} date=2026-11-20 Bought rice")
            await stage.say(chat, f",remember scope={scope} Sings at night")
            await stage.say(chat, f",memory.forget scope={scope} rain")
            await stage.say(chat, f",memory.restore 3 scope={scope}")
    await stage.say(OTHER, ",memory.save scope=user Rides a horse")
    await stage.say(OTHER, please("memory_clear", confirm=True, scope="user"))
    await stage.say(OTHER, ",memory.clear scope=user yes")
    await stage.say(OTHER, ",memory.clear confirm=true scope=user")
    await stage.say(OTHER, ",memory.save scope=chat Rides a horse")
    await stage.say(OTHER, ",memory.clear confirm=true")


def act(stage: Stage, to: str, text: str) -> str:
    """Write a message that lets the model act outside."""
    if stage.acts_outside:
        return please("post_send", to=to, text=text)
    return please("shell_run", argv=["echo", f"{text} {to}"])


async def decide_approvals(stage: Stage) -> None:
    """Let the model ask for what acts outside, and people answer with commands and with buttons."""
    send = act(stage, "bob", "hello")
    await stage.say(MEMBER, send)
    for chat, scope in ((OWNER, ""), (OWNER, "chat"), (OWNER, "always")):
        number = len(stage.read)
        await stage.say(chat, act(stage, f"bob{number}{scope}", f"hello {number}"))
        card = stage.find(CARD)
        await stage.say(OTHER, f",approve {card}")
        await stage.say(OWNER, f",approve {card} {scope}".strip())
    await stage.say(OWNER, act(stage, "bob3always", "again"))
    listed = await stage.say(OWNER, ",approvals")
    await stage.say(OWNER, ",approvals revoke 1")
    for grant in stage.numbers(listed):
        await stage.say(OWNER, f",approvals revoke {grant}")
    await stage.say(OWNER, send)
    await stage.say(OWNER, f',deny {stage.find(r"Approval .?.?([2-9A-Z]{5})")} reason="not now"')
    await stage.say(OWNER, send)
    await press(stage, OWNER, "7")
    await press(stage, OWNER, "1")
    if stage.acts_outside:
        await stage.say(OWNER, please("page_read", address="https://example.org/a"))
    await stage.say(OWNER, act(stage, "eve", "after a page"))


async def press(stage: Stage, chat: str, person: str) -> None:
    """Press the first button that the bot showed last."""
    channel, _, number = chat.partition(":")
    if not stage.buttons:
        return
    message, button = stage.buttons[-1]
    who = Sender(person, f"Person {person}")
    await stage.receive(ButtonPress(channel, stage.external(), number, message, who, button, stage.time()))


async def talk(stage: Stage) -> None:
    """Let people write, change, quote, attach, move, and use the commands of a chat."""
    await stage.say(OWNER, "hello", attachments=(Attachment("f1", "notes.txt", "text/plain", 12),))
    await stage.say_slowly(OWNER, "think about it")
    await stage.say(MEMBER, "see this", quote=Quote("m1", Sender("1", "Person 1"), "hello"), reply_to="m1")
    await stage.say(MEMBER, "forwarded words", provenance="other")
    who = Sender("5", "Person 5")
    newest = stage.newest
    await stage.receive(Edit("tg", stage.external(), "5", newest, who, "changed words", stage.time()))
    await stage.receive(Reaction("tg", stage.external(), "5", newest, who, ("👍",), stage.time()))
    await stage.receive(Reaction("tg", stage.external(), "5", "p1", who, ("👍",), stage.time()))
    await stage.receive(Deletion("tg", stage.external(), "5", newest, stage.time()))
    await stage.receive(UnparsedUpdate("tg", stage.external(), "5", b"\xff{odd}", "not understood", "5"))
    await stage.say(GROUP, "in the group", "5", addressed=False)
    await stage.say(GROUP, "and to you", "7")
    await stage.receive(ChatMigration("tg", stage.external(), "-8", "-1008", stage.time()))
    for text in (
        "again and again", ",status", ",handoff planning summary=\"We plan.\"", ",correct 1 \"hello there\"", ",vouch 1", ",strategy window",
        ",strategy retrieval", "What about the plan?", ",strategy default", ",model scripted", ",model.relearn", ",topic rome", "Rome is old",
        ",topic.bind rome", ",topic off", ",summary", ",fork What is up?", ",retry", ",explain What was planned?",
        ",file.write a.txt \"words\"", ",file.undo a.txt", ",file.send b.txt text=words", ",new", ",unknown.command", "at last",
    ):  # fmt: skip
        await stage.say(OWNER, text)
    await stage.say(OWNER, please("agent_run", task="Think of tea"))
    await stage.say(OWNER, please("file_write", path="note.txt", content="words"))
    await stage.say(OWNER, please("file_read", path="../x"))


async def schedule(stage: Stage) -> None:
    """Let jobs be made, changed, run, missed and removed."""
    for text in (
        ",schedule.chat Europe/Berlin", ",schedule in 1h: Say hello", ",schedule every 2h: Say hello",
        ",schedule in 3h text=\"Time for tea\"", ",schedule in 4h command=,status", f",schedule to={MEMBER} in 2h: Say hello",
        ",schedule in 2m allow=post.send prompt=\"Say hello\"", ",schedule nothing at all",
    ):  # fmt: skip
        await stage.say(OWNER, text)
    jobs = list(stage.jobs())
    for job in jobs:
        await stage.say(OWNER, f",schedule.run {job}")
        await stage.fire(job)
    await stage.say(OWNER, f",schedule.edit {jobs[1]} name=tea")
    await stage.say(OWNER, f",schedule.pause {jobs[1]}")
    await stage.say(OWNER, f",schedule.resume {jobs[1]}")
    for job in jobs[2:4]:  # no model holds these back, so the order of their last facts would depend on tasks
        await stage.say(OWNER, f",schedule.remove {job}")
    stage.clock.advance(days=3)
    for job in stage.jobs():
        await stage.fire(job)
    await stage.say(OWNER, please("schedule_add", when="every 1h", prompt="Say hello"))
    await stage.say(OWNER, ",schedule every 5h: Say hello")


async def fail_deliveries(stage: Stage) -> None:
    """Let platforms refuse what the bot sends."""

    async def refuse(_channel: str, _part: MessagePart) -> None:
        raise DeliveryFailed("the chat is gone", permanent=True)

    stage.before_sending, before = refuse, stage.before_sending
    await stage.say("dc:15", "can you hear me?")
    stage.before_sending = before


async def reset(stage: Stage) -> None:
    """Archive one chat, and erase another."""
    await stage.say(OWNER, "for the archive", thread="3")
    await stage.say(OWNER, ",reset archive", thread="3")
    await stage.say(OWNER, "after it", thread="3")
    await stage.say(OWNER, "secret words", thread="4")
    await stage.say(OWNER, ",reset erase", thread="4")
    await stage.say(OWNER, "here again", thread="4")


async def join(stage: Stage) -> None:
    """Let a person write again while a turn runs, and let a forwarded message be vouched for."""
    gate = Gate()
    stage.before_answer, before = gate.wait, stage.before_answer
    await stage.accept(stage.message(MEMBER, please("file_list")))
    await gate.reached.wait()
    await stage.accept(stage.message(MEMBER, "and one more thing"))
    stage.before_answer = before
    gate.opened.set()
    await stage.quiet()
    await stage.say(OWNER, "words of somebody else", provenance="other")
    await stage.say(OWNER, ",tape.search words of somebody else")
    found = stage.find(r"#(\d+)")
    await stage.say(OWNER, f",vouch {found}")
    await stage.say(OWNER, "rome in a thread", thread="9")
    await stage.say(OWNER, ",topic.bind rome", thread="9")
    await stage.say(OWNER, "too large", attachments=(Attachment("f2", "all.zip", "application/zip", 2_000_000),))


async def fail_jobs(stage: Stage) -> None:
    """Let jobs fail, and let one be refused since its person may not speak any more."""
    await stage.say("tg:21", ",schedule in 1h: Say hello")
    refused = stage.jobs()[-1]
    await stage.say(OWNER, ",schedule in 1h: Say hello")
    failed = stage.jobs()[-1]
    await stage.say(OWNER, ",access.revoke 21")
    stage.clock.advance(hours=2)
    await stage.fire(refused)
    stage.model.failure = ModelRefused("the model does not answer that")
    await stage.fire(failed)
    stage.model.failure = None


async def change_settings(stage: Stage) -> None:
    """Let the owner choose another model, change settings while the bot runs, and change them wrongly."""
    await stage.say(OWNER, f",model {OTHER_MODEL}")
    await stage.say(OWNER, "with the other model")
    await stage.reload({**SETTINGS, "budget": {"day": 40}})
    with suppress(ConfigError):
        await stage.reload({**SETTINGS, "model": {"name": "nobody/nothing"}})


async def crash(stage: Stage) -> None:
    """End the bot by force: an answer is being sent, another is being written, a card is open, a grant is in force."""
    await stage.say(OWNER, act(stage, "carol", "hello"))
    await stage.say(OWNER, f",approve {stage.find(CARD)} always")
    await stage.say(OWNER, please("memory_clear", confirm=True))
    stage.find(CARD)
    sending, answering = Gate(), Gate()
    stage.before_sending, before_sending = sending.wait, stage.before_sending
    await stage.accept(stage.message("dc:15", "are you there?"))
    await sending.reached.wait()
    await stage.accept(stage.message(MEMBER, please("file_list")))
    steps = count(1)

    async def hold_second() -> None:
        if next(steps) > 1:
            await answering.wait()

    stage.before_answer, before_answer = hold_second, stage.before_answer
    await answering.reached.wait()
    stage.copy_home(stage.home.with_name("crashed"))
    stage.before_sending, stage.before_answer = before_sending, before_answer
    sending.opened.set()
    answering.opened.set()
    await stage.quiet()


async def live(stage: Stage) -> None:
    """Let everything happen, one after another, until the bot is killed; its home is then as that leaves it."""
    async with stage.life():
        for part in (
            change_access, change_memory, decide_approvals, talk, schedule, join, fail_deliveries, reset, fail_jobs, crash,
        ):  # fmt: skip
            await part(stage)
    stage.home = stage.home.with_name("crashed")
    stage.write_config()


async def go_on(stage: Stage) -> None:
    """Let the bot start after that, under other settings; and let commands of the shell change its home."""
    async with stage.life():
        await change_settings(stage)
    await spend(stage)
    await stage.command("ask", "--model", "scripted", "hello")
    exported = stage.home.with_name("exported.jsonl")
    await stage.command("tape", "export", "default", str(exported))
    await stage.command("tape", "import", "--session", "default-2", str(exported))
    backup = stage.home.with_name("backup")
    await stage.command("backup", str(backup))
    stage.home = stage.home.with_name("restored")
    await stage.command("restore", str(backup))
    await stage.command("restore", "--release")


async def spend(stage: Stage) -> None:
    """Let the bot spend nearly all that it may, with a model whose window is small."""
    prices = {
        "day": 50,
        "models": {"leaky": {"input_price": 1.0, "output_price": 1.0}},
        "chats": {"dc:15": {"tokens_day": 20_000}},
    }
    async with stage.life({**SETTINGS, "budget": prices}):
        stage.model.context_tokens = 4_200
        await stage.say("dc:15", ",strategy compact")
        for number in range(8):
            await stage.say("dc:15", f"{number} " + "long words " * 200)
        stage.model.context_tokens = 0


async def run(stage: Stage) -> None:
    """Let everything happen."""
    await live(stage)
    await go_on(stage)
