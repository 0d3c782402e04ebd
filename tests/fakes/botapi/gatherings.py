"""What happens to a chat itself: members, administrators, topics, migration, blocks."""

from __future__ import annotations

from dataclasses import dataclass

from tests.fakes.botapi.errors import Json
from tests.fakes.botapi.hearing import tell
from tests.fakes.botapi.messages import post
from tests.fakes.botapi.rooms import Room
from tests.fakes.botapi.world import Bot, Chat, Topic, User

BLUE = 7_322_096
RIGHTS = [
    "can_be_edited",
    "can_manage_chat",
    "can_delete_messages",
    "can_manage_video_chats",
    "can_restrict_members",
    "can_promote_members",
    "can_change_info",
    "can_invite_users",
    "can_post_stories",
    "can_edit_stories",
    "can_delete_stories",
]


def as_member(user: User, status: str) -> Json:
    """A ChatMember."""
    shown: Json = {"user": user.json(), "status": status}
    if status == "creator":
        shown["is_anonymous"] = False
    if status == "administrator":
        shown |= {"is_anonymous": False, **dict.fromkeys(RIGHTS, True), "can_be_edited": False}
        shown |= {"can_pin_messages": True, "can_manage_topics": True}
    if status == "kicked":
        shown["until_date"] = 0
    return shown


@dataclass(frozen=True, slots=True)
class Gathering(Room):
    """A private chat, group, supergroup, forum or channel with what can happen to it."""

    def _service(self, by: User | None, content: Json, words: str, *, thread: int | None = None) -> Json:
        message = post(self.world, self.chat, by, content, thread=thread)
        self.world.happened(
            self.chat, "service", f"{by.name() if by else self.chat.title}:", words, message["message_id"]
        )
        tell(self.world, self.chat, message)
        return message

    def set_status(self, user: User, status: str, by: User) -> None:
        """Changes what somebody is in the chat: my_chat_member for a bot about itself, chat_member for admins."""
        old, new = self.chat.member(user.id), status
        here = self.world.bots_in(self.chat)
        self.chat.members[user.id] = user
        self.chat.status[user.id] = new
        update = {"chat": self.chat.json(), "from": by.json(), "date": self.world.clock.seconds()}
        update |= {"old_chat_member": as_member(user, old), "new_chat_member": as_member(user, new)}
        for bot in {one.token: one for one in [*here, *self.world.bots_in(self.chat)]}.values():
            if bot.user.id == user.id:
                bot.queue.push("my_chat_member", update)
            elif self.chat.is_admin(bot.user.id):
                bot.queue.push("chat_member", update)
        self.world.changed.set()

    def join(self, user: User, by: User | None = None) -> Json:
        """Somebody, or a bot, comes in, by themselves or added by another."""
        self.set_status(user, "member", by or user)
        shown = {"new_chat_members": [user.json()], "new_chat_participant": user.json(), "new_chat_member": user.json()}
        return self._service(by or user, shown, f"{user.name()} joined")

    def leave(self, user: User, by: User | None = None) -> Json:
        """Somebody goes, or is put out by another."""
        message = self._service(by or user, {"left_chat_member": user.json()}, f"{user.name()} left")
        self.set_status(user, "kicked" if by is not None and by is not user else "left", by or user)
        return message

    def promote(self, user: User, by: User) -> None:
        self.set_status(user, "administrator", by)

    def block(self) -> None:
        """The person blocks the bot of a private chat."""
        self._set_blocked(blocked=True)

    def unblock(self) -> None:
        self._set_blocked(blocked=False)

    def _set_blocked(self, *, blocked: bool) -> None:
        bot, person = self.chat.owner, self.chat.person
        if bot is None or person is None:
            raise ValueError("only a private chat can be blocked")
        old, new = ("member", "kicked") if blocked else ("kicked", "member")
        self.chat.blocked = blocked
        update = {"chat": self.chat.json(), "from": person.json(), "date": self.world.clock.seconds()}
        update |= {"old_chat_member": as_member(bot.user, old), "new_chat_member": as_member(bot.user, new)}
        bot.queue.push("my_chat_member", update)
        self.world.happened(
            self.chat, "service", f"{person.name()}:", "blocked the bot" if blocked else "unblocked the bot"
        )

    def topic(self, name: str, by: User) -> Topic:
        """A new topic of a forum."""
        if not self.chat.is_forum:
            raise ValueError("only a forum has topics")
        message = post(self.world, self.chat, by, {"forum_topic_created": {"name": name, "icon_color": BLUE}})
        number: int = message["message_id"]
        message |= {"message_thread_id": number, "is_topic_message": True}
        self.chat.topics[number] = Topic(number, name)
        self.world.happened(self.chat, "service", f"{by.name()}:", f"opened the topic “{name}”", number)
        tell(self.world, self.chat, message)
        return self.chat.topics[number]

    def close_topic(self, topic: Topic, by: User) -> None:
        topic.closed = True
        self._service(by, {"forum_topic_closed": {}}, f"closed the topic “{topic.name}”", thread=topic.id)

    def migrate(self, by: User, supergroup: int) -> Gathering:
        """The group becomes a supergroup with another id; messages do not come along."""
        old = self.chat
        new = Chat(supergroup, "supergroup", old.title, status={**old.status}, members={**old.members})
        self.world.add_chat(new)
        self._service(by, {"migrate_to_chat_id": new.id}, "made this group a supergroup")
        old.upgraded_to = new.id
        room = Gathering(self.world, new)
        room._service(by, {"migrate_from_chat_id": old.id}, "made the group a supergroup")
        return room


def invite(room: Gathering, bots: list[Bot], people: list[User]) -> None:
    """Puts the first members into a new chat; only bots get updates of it."""
    for place, person in enumerate(people):
        room.chat.status[person.id] = "creator" if place == 0 else "member"
        room.chat.members[person.id] = person
    for bot in bots:
        room.set_status(bot.user, "administrator" if room.chat.kind == "channel" else "member", people[0])
