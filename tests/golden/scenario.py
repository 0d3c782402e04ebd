"""What happens to the recorded bot: every act is one that people, platforms or owners do."""

from __future__ import annotations

from datetime import timedelta

from bubbot.errors import DeliveryFailed
from bubbot.features.access.service import TERMINAL
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
    Role,
    Sender,
    UnparsedUpdate,
)
from tests.golden.stage import Stage
from tests.privacy.model import please

OWNER, MEMBER, OTHER, GROUP, ELSEWHERE = "tg:1", "tg:5", "tg:7", "tg:-8", "dc:15"


async def change_access(stage: Stage) -> None:
    """Let strangers in and out, link accounts, and let chats and auditors read."""
    access = stage.daemon.access
    await stage.say("tg:21", "May I talk?")
    code = stage.find(r"[2-9A-Z]{8}")
    await stage.say("tg:21", "And now?")
    await stage.say(OWNER, ",access.approve AAAAAAAA")
    await stage.say(OWNER, f",access.approve {code} member")
    await stage.say(OWNER, f",access.approve {code} member")
    await stage.say("tg:22", "May I, too?")
    await stage.say(OWNER, ",access.decline 22 channel=tg")
    await stage.say(OWNER, ",access.grant 23 member channel=tg")
    await access.grant("dc", "24", Role.ADMIN, TERMINAL)
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


async def decide_approvals(stage: Stage) -> None:
    """Let the model ask for what acts outside, and people answer with commands and with buttons."""
    send = please("post_send", to="bob", text="hello")
    await stage.say(MEMBER, send)
    for chat, scope in ((OWNER, ""), (OWNER, "chat"), (OWNER, "always")):
        number = len(stage.read)
        await stage.say(chat, please("post_send", to=f"bob{number}{scope}", text=f"hello {number}"))
        card = stage.find(r"Approval \**([2-9A-Z]{5})")
        await stage.say(OTHER, f",approve {card}")
        await stage.say(OWNER, f",approve {card} {scope}".strip())
    await stage.say(OWNER, please("post_send", to="bob3always", text="again"))
    listed = await stage.say(OWNER, ",approvals")
    await stage.say(OWNER, ",approvals revoke 1")
    for grant in stage.numbers(listed):
        await stage.say(OWNER, f",approvals revoke {grant}")
    await stage.say(OWNER, send)
    await stage.say(OWNER, f',deny {stage.find(r"Approval .?.?([2-9A-Z]{5})")} reason="not now"')
    await stage.say(OWNER, send)
    await press(stage, OWNER, "7")
    await press(stage, OWNER, "1")
    await stage.say(OWNER, please("page_read", address="https://example.org/a"))
    await stage.say(OWNER, please("post_send", to="eve", text="after a page"))


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
    stage.clock.advance(timedelta(days=3))
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


async def run(stage: Stage) -> None:
    """Let everything happen, one after another."""
    async with stage.life():
        for part in (change_access, change_memory, decide_approvals, talk, schedule, fail_deliveries, reset):
            await part(stage)
