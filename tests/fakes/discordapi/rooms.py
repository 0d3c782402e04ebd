"""What people do: in a channel, in a guild, in a forum."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tests.fakes.discordapi import events, posting
from tests.fakes.discordapi.errors import Json
from tests.fakes.discordapi.permissions import USUAL, bits
from tests.fakes.discordapi.world import FORUM, TEXT, Channel, Guild, Member, Message, Role, User, World
from tests.fakes.platform import rooms

GivenFile = tuple[str, bytes, str]
"""Name, content, type."""


@dataclass(frozen=True, slots=True)
class Room(rooms.Room[User]):
    """A channel, a thread or a direct conversation, for the people in it."""

    world: World
    channel: Channel

    @property
    def id(self) -> int:
        return self.channel.id

    @property
    def key(self) -> int:
        return self.channel.id

    @property
    def name(self) -> str:
        return self.channel.name

    @property
    def mention(self) -> str:
        return self.channel.mention

    @property
    def messages(self) -> list[Message]:
        """What is there now, oldest first."""
        return [one for _, one in sorted(self.channel.messages.items())]

    def texts(self, by: User | None = None) -> list[str]:
        """The texts that are there now, of everybody or of one."""
        return [one.content for one in self.messages if by is None or one.author.id == by.id]

    def write(self, text: str) -> None:
        self.say(self._person(), text)

    def text_of(self, message: int) -> str:
        return self.channel.messages[message].content if message in self.channel.messages else ""

    def say(
        self,
        user: User,
        text: str = "",
        *,
        reply_to: Message | None = None,
        files: Iterable[GivenFile] = (),
        stickers: Iterable[str] = (),
        embeds: Iterable[Json] = (),
        mention_author: bool = True,
    ) -> Message:
        """Somebody says something; who is mentioned follows from the text."""
        kept = [posting.store_file(self.world, self.channel, *one) for one in files]
        names = [{"id": str(self.world.ids.next()), "name": name, "format_type": 1} for name in stickers]
        allowed = {**posting.ALL, "replied_user": mention_author}
        return posting.post(
            self.world,
            self.channel,
            user,
            text,
            reply_to=reply_to,
            files=kept,
            stickers=names,
            embeds=list(embeds),
            allowed=allowed,
        )

    def edit(self, message: Message, text: str) -> None:
        """The author edits."""
        posting.edit(self.world, message, content=text)

    def unfurl(self, message: Message, embed: Json) -> None:
        """A preview of a link appears: an update that is no edit."""
        message.embeds.append({"type": "link", **embed})
        posting.update(self.world, message)

    def pin(self, message: Message) -> None:
        """Pins a message: another update that is no edit."""
        message.pinned = True
        posting.update(self.world, message)

    def delete(self, *messages: Message) -> None:
        """Takes a message away, or several at once."""
        posting.delete(self.world, self.channel, [one.id for one in messages], bulk=len(messages) > 1)

    def react(self, user: User, message: Message, emoji: str) -> None:
        """Somebody reacts."""
        posting.react(self.world, message, user, emoji)

    def unreact(self, user: User, message: Message, emoji: str) -> None:
        """Somebody takes a reaction back."""
        posting.unreact(self.world, message, user, emoji)

    def typing(self, user: User) -> None:
        """Somebody begins to type."""
        posting.typing(self.world, self.channel, user)

    # Threads

    def thread(self, name: str, starter: Message | None = None, *, by: User | None = None) -> Room:
        """A thread at a message, or by itself; the author of the message or `by` opens it."""
        owner = by or (starter.author if starter else None)
        if owner is None:
            raise ValueError("somebody has to open a thread")
        opened = posting.open_thread(self.world, self.channel, owner, name, starter=starter)
        if starter is None:
            posting.announce_thread(self.world, opened, owner)
        return Room(self.world, opened)

    def archive(self, *, locked: bool = False) -> None:
        """Archives this thread, and locks it where asked."""
        posting.set_thread(self.world, self.channel, **{"archived": True, **({"locked": True} if locked else {})})

    def lock(self) -> None:
        """Locks this thread; it stays open."""
        posting.set_thread(self.world, self.channel, locked=True)

    # What the channel is

    def rename(self, name: str) -> None:
        """Gives the channel another name."""
        if self.channel.is_thread:
            posting.set_thread(self.world, self.channel, name=name)
            return
        self.channel.name = name
        events.channel(self.world, "UPDATE", self.channel)

    def remove(self) -> None:
        """Deletes the channel or thread."""
        posting.remove_channel(self.world, self.channel)

    def deny(self, who: User | Role, *names: str) -> None:
        """Takes permissions away in this channel, such as `send_messages`."""
        self._overwrite(who, 0, bits(*names))

    def allow(self, who: User | Role, *names: str) -> None:
        """Gives permissions in this channel."""
        self._overwrite(who, bits(*names), 0)

    def _overwrite(self, who: User | Role, more: int, less: int) -> None:
        allow, deny = self.channel.overwrites.get(who.id, (0, 0))
        self.channel.overwrites[who.id] = ((allow | more) & ~less, (deny | less) & ~more)
        events.channel(self.world, "UPDATE", self.channel)

    def block(self) -> None:
        """The person of a direct conversation takes no messages of the bot any more."""
        self.world.blocked.add(self._person().id)

    def unblock(self) -> None:
        """Takes messages again."""
        self.world.blocked.discard(self._person().id)

    def _person(self) -> User:
        others = [one for one in self.channel.recipients if one.id != self.world.bot.id]
        if not others:
            raise ValueError("only a direct conversation has one person")
        return others[0]


@dataclass(frozen=True, slots=True)
class Forum(Room):
    """A forum: its messages are posts, each a thread of its own."""

    def post(self, title: str, text: str, by: User, *, files: Iterable[GivenFile] = ()) -> Room:
        """Somebody opens a post."""
        kept = [posting.store_file(self.world, self.channel, *one) for one in files]
        thread, _ = posting.open_post(self.world, self.channel, by, title, text, files=kept)
        return Room(self.world, thread)


@dataclass(frozen=True, slots=True)
class Place:
    """A guild with what can happen to it."""

    world: World
    guild: Guild

    @property
    def id(self) -> int:
        return self.guild.id

    @property
    def name(self) -> str:
        return self.guild.name

    @property
    def everyone(self) -> Role:
        return self.guild.roles[self.guild.id]

    def text(self, name: str) -> Room:
        """A new text channel."""
        channel = self.world.add_channel(TEXT, name, guild=self.guild)
        events.channel(self.world, "CREATE", channel)
        return Room(self.world, channel)

    def forum(self, name: str) -> Forum:
        """A new forum."""
        channel = self.world.add_channel(FORUM, name, guild=self.guild)
        events.channel(self.world, "CREATE", channel)
        return Forum(self.world, channel)

    def role(self, name: str, *names: str) -> Role:
        """A new role with permissions such as `manage_messages`."""
        role = Role(self.world.ids.next(), name, bits(*names), len(self.guild.roles))
        self.guild.roles[role.id] = role
        events.role(self.world, self.guild, role.id, "CREATE")
        return role

    def give(self, role: Role, user: User) -> None:
        """Somebody gets a role."""
        self.guild.members[user.id].roles.append(role.id)
        events.member(self.world, self.guild, self.guild.members[user.id])

    def take(self, role: Role, user: User) -> None:
        """Somebody loses a role."""
        self.guild.members[user.id].roles.remove(role.id)
        events.member(self.world, self.guild, self.guild.members[user.id])

    def nick(self, user: User, name: str | None) -> None:
        """Somebody is called otherwise here."""
        self.guild.members[user.id].nick = name
        events.member(self.world, self.guild, self.guild.members[user.id])

    def join(self, user: User) -> None:
        """Somebody comes in; of the bot it is a new guild."""
        member = Member(user, self.world.clock.stamp())
        self.guild.members[user.id] = member
        if user.id == self.world.bot.id:
            self._welcome(member)
            events.guild(self.world, self.guild, "CREATE", joined=True)
        else:
            events.member(self.world, self.guild, member, "ADD")

    def leave(self, user: User) -> None:
        """Somebody goes, or is put out; of the bot the guild is gone."""
        member = self.guild.members.pop(user.id)
        if user.id == self.world.bot.id:
            events.guild(self.world, self.guild, "DELETE")
        else:
            events.member(self.world, self.guild, member, "REMOVE")

    def outage(self) -> None:
        """The guild is not available for a while."""
        self.guild.available = False
        events.guild(self.world, self.guild, "DELETE", unavailable=True)

    def recover(self) -> None:
        """The guild is available again."""
        self.guild.available = True
        events.guild(self.world, self.guild, "CREATE")

    def _welcome(self, member: Member) -> None:
        """The bot's own role."""
        role = Role(self.world.ids.next(), member.user.username, int(USUAL), managed_by=member.user.id)
        self.guild.roles[role.id] = role
        member.roles.append(role.id)


def found(world: World, name: str, owner: User, members: Iterable[User], *, bot: bool) -> Place:
    """A new guild. The bot is in it from the start unless told otherwise."""
    guild = Guild(world.ids.next(), name, owner)
    guild.roles[guild.id] = Role(guild.id, "@everyone", int(USUAL), 0)
    for user in {one.id: one for one in [owner, *members]}.values():
        guild.members[user.id] = Member(user, world.clock.stamp())
    world.guilds[guild.id] = guild
    place = Place(world, guild)
    if bot:
        place.join(world.bot.user)
    return place
