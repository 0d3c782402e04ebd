"""People who may speak: grants, revocations and pairing codes, each a fact on the tape `bubbot/access`.

The configured lists are fixed: nothing here takes away from them. `docs/concepts/access.md` explains access,
`docs/reference/tape-format.md` lists the events.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import datetime, timedelta
from hashlib import sha256
from hmac import compare_digest
from types import MappingProxyType
from typing import Literal, TypeAlias

from bubbot.errors import AccessError, ConfigError
from bubbot.features.access.state import (
    ACCESS_PROJECTION,
    AUDIT_GRANTED,
    AUDIT_REVOKED,
    CLOCK_SKEW,
    CODE,
    CODE_REFUSED,
    CODE_REMINDED,
    CODE_USED,
    DECLINED,
    GRANTED,
    GROUP,
    LINK_CLAIMED,
    LINK_CODE,
    LINK_DECLINED,
    LINKED,
    READING_GRANTED,
    READING_REVOKED,
    REQUESTED,
    REVOKED,
    UNLINKED,
    AccessHistoryView,
    AccessState,
    AccountKey,
    AuditGrant,
    GroupAudience,
    LinkCode,
    PairingCode,
    ReadingGrant,
    RoleGrant,
    format_auditor,
)
from bubbot.identity import is_id, numeric_id
from bubbot.ports.access import (
    NO_LISTED_PEOPLE,
    AccessRequest,
    Audience,
    CodeReminder,
    ListedPeople,
    SendReminder,
    SendRequest,
    higher_role,
)
from bubbot.ports.channel import Role, Sender
from bubbot.ports.session_names import keep_session, parse_session, require_user_tape
from bubbot.ports.text import clean
from bubbot.tape.entry import TapeEntry, event, timestamp
from bubbot.tape.handle import Clock, TapeHandle
from bubbot.tape.projection import ProjectionRunner
from bubbot.tape.query import parse_moment

log = logging.getLogger(__name__)

ACCESS_TAPE = ACCESS_PROJECTION.tapes
TERMINAL = "terminal"
"""The operating system's user as giver: the owner of everything."""

CODE_ALPHABET = "23456789ABCDEFGHJKLMNPQRSTUVWXYZ"
"""The 32 characters of a code; none looks like another one (no 0 and O, no 1 and I)."""
CODE_LENGTH = 8
CODE_LIFETIME = timedelta(hours=1)
MIN_CODE_INTERVAL = timedelta(minutes=10)
"""The shortest time between two codes for one person."""
MAX_OPEN_CODES_PER_SENDER = 3
MAX_CODES_IN_A_ROW = 10
"""Codes that a channel may give in a row; then one per `CODE_INTERVAL`, so that a flood of strangers delays the next
person by minutes and not by the lifetime of a code."""
CODE_INTERVAL = timedelta(minutes=12)
MAX_CODES_PER_DAY = 120
"""Codes of a channel within any 24 hours. Each is two facts, the code and the refused message, and as many again with a reminder and its
delivery."""
MAX_WRONG_CODES = 10
"""Codes that one giver may get wrong within an hour; with 2 ** 40 codes nobody guesses one."""
CODE_RETENTION = timedelta(days=1)
"""The time for which a code is remembered after it was given, to say that it has expired."""
REQUEST_INTERVAL = timedelta(days=1)
"""The shortest time between two questions to an owner about one person, or after an owner declined."""
MAX_STORED_NAME_CHARS = 64
AUDITOR_NAME = r"[a-z0-9][a-z0-9._-]{0,31}"
"""The name of an auditor who has no account on a channel."""
LINK_CODE_LIFETIME = timedelta(minutes=15)
"""The time in which a link code has to be typed, and the link confirmed."""
MAX_LINK_CODES_PER_HOUR = 5
MAX_LINKED_ACCOUNTS = 8
"""Accounts that one person may have."""

LinkRefusal: TypeAlias = Literal[
    "malformed", "unknown", "used", "expired", "own", "linked", "many", "wrong", "often", "none", "alone", "bot"
]
"""Why accounts are not linked, or not unlinked."""
SendClaim: TypeAlias = Callable[[LinkCode, TapeEntry], Awaitable[None]]
"""Ask the account of a code to confirm, and store the fact that it was claimed, in one transaction."""
OnGranted: TypeAlias = Callable[[str, str], Awaitable[None]]
"""Called with channel and id once a person has a role by a grant, and again if the same is granted again."""
IsGroup: TypeAlias = Callable[[str, str], Awaitable[bool]]
"""Return true if an id on a channel is known to be that of a group or a space, not of a person."""
RandomBytes: TypeAlias = Callable[[int], bytes]
"""Return that many random bytes; passed in, so that tests can choose them."""


async def ignore_grant(channel: str, sender_id: str) -> None:
    """Do nothing: the default of `AccessService`."""


async def know_no_group(channel: str, number: str) -> bool:
    """Return false: the default of `AccessService`."""
    return False


class AccessService:
    """The one writer of the access tape.

    `configured` has an entry for every configured channel. Until `load` has returned, only its lists count. Changes
    are serialised and durable when they return; cancelling a caller does not stop one half-way.
    """

    def __init__(
        self,
        tape: TapeHandle,
        *,
        now: Clock,
        random: RandomBytes,
        configured: Mapping[str, ListedPeople] | None = None,
        projections: ProjectionRunner | None = None,
        first_session: Callable[[str], Awaitable[str]] = keep_session,
        on_granted: OnGranted = ignore_grant,
        is_group: IsGroup = know_no_group,
    ) -> None:
        self._tape = tape
        self._on_granted = on_granted
        self._is_group = is_group
        self._first_session = first_session
        self._now = now
        self._random = random
        self._configured = MappingProxyType(dict(configured or {}))
        self._projected = (projections or ProjectionRunner()).project(ACCESS_PROJECTION, tape)
        self._state = AccessState()
        self._is_current = False
        self._warned: dict[str, datetime] = {}
        self._lock = asyncio.Lock()

    @property
    def configured(self) -> Mapping[str, ListedPeople]:
        """The lists of the configuration, by channel."""
        return self._configured

    @configured.setter
    def configured(self, lists: Mapping[str, ListedPeople]) -> None:
        self._configured = MappingProxyType(dict(lists))

    @property
    def state(self) -> AccessState:
        """The state that follows from the facts, as of the last load or change."""
        return self._state

    def role(self, channel: str, sender_id: str) -> Role:
        """Return a person's role: the highest of the configured and the granted one. Read nothing.

        A text that is not a numeric id is a stranger, whatever the lists say.
        """
        if not is_id(sender_id):
            return Role.STRANGER
        listed = self._configured.get(channel, NO_LISTED_PEOPLE).role(sender_id)
        return higher_role(listed, self._state.role(channel, sender_id))

    def audience(self, channel: str, group: str) -> Audience | None:
        """Return who may speak in a group as an owner decided; None if nobody decided. Read nothing."""
        decided = self._state.groups.get((channel, group))
        return decided.audience if decided else None

    def list_groups(self) -> tuple[GroupAudience, ...]:
        """Return what was decided about groups, in their order."""
        return tuple(group for _, group in sorted(self._state.groups.items()))

    def may_read(self, reader: str, source: str) -> bool:
        """Return true if one session was granted to read another one. Read nothing."""
        return (source, reader) in self._state.readings

    def list_readings(self) -> tuple[ReadingGrant, ...]:
        """Return which sessions may read which others, in their order."""
        return tuple(grant for _, grant in sorted(self._state.readings.items()))

    def list_audits(self) -> tuple[AuditGrant, ...]:
        """Return which auditors may see which tapes, in their order."""
        return tuple(grant for _, grant in sorted(self._state.audits.items()))

    def list_people(self, channel: str) -> tuple[str, ...]:
        """Return the numeric ids of those who may speak on a channel, configured or granted."""
        granted = [grant.id for grant in self._state.grants.values() if grant.channel == channel]
        return tuple(dict.fromkeys([*self._configured.get(channel, NO_LISTED_PEOPLE).listed_roles(), *granted]))

    async def load(self) -> None:
        """Read the tape, once; later changes update the state."""
        async with self._lock:
            await self._refresh()

    async def read_history(self, limit: int = 50) -> tuple[TapeEntry, ...]:
        """Return the newest facts, newest first."""
        return await self._tape.read(AccessHistoryView(limit))

    def pending_codes(self) -> tuple[PairingCode, ...]:
        """Return the codes that can be approved now, oldest first."""
        now = self._now()
        return tuple(code for code in self._state.codes if code.is_open(now))

    async def create_code(self, sender: Sender, channel: str, chat: str) -> str | None:
        """Return a new code for a stranger, or None if the bot should stay silent.

        None: the id is not numeric, it is a bot, it may speak already, it got a code less than ten minutes ago, it
        has three open ones, or the channel has given out as many as it may for now.
        """
        return await asyncio.shield(self._pair(sender, channel, chat))

    async def remind(self, sender: Sender, channel: str, send: SendReminder) -> bool:
        """Remind a stranger once of the newest code, if that is open; `send` stores the fact with the notice."""
        return await asyncio.shield(self._remind(sender, channel, send))

    def find_code(self, code: str) -> PairingCode | None:
        """Find the open code of a text, as `approve` does. Raise `ConfigError` if the text cannot be a code."""
        pairing = self._find(_normalize_code(code))
        return pairing if pairing is not None and pairing.is_open(self._now()) else None

    async def approve(self, code: str, role: Role, giver: str) -> RoleGrant:
        """Grant the role to the person who got the code, and use up the code, in one transaction.

        Upper and lower case are the same in a code; spaces and hyphens do not count.

        Raises:
            AccessError: the code is unknown, expired or used, or the giver had too many wrong ones or may not give the
                role.
            ConfigError: the text cannot be a code.
        """
        return await asyncio.shield(self._then_welcome(self._approve(code, role, giver)))

    async def grant(self, channel: str, sender_id: str, role: Role, giver: str) -> RoleGrant:
        """Give a person a role that replaces the granted one; the same role again writes nothing.

        Raises:
            ConfigError: the channel is not configured, or the id is not numeric or that of a group.
            AccessError: the giver may not give this role.
        """
        return await asyncio.shield(self._then_welcome(self._grant(channel, sender_id, role, giver)))

    async def request(self, sender: Sender, channel: str, chat: str, send: SendRequest) -> bool:
        """Ask an owner about a stranger, at most once in a day; `send` stores the fact with the question."""
        return await asyncio.shield(self._request(sender, channel, chat, send))

    async def decline(self, channel: str, sender_id: str, giver: str) -> None:
        """Void the codes of a stranger, of whom no owner is asked for a day. Somebody with a role keeps it.

        Raises:
            ConfigError: the channel is not configured, or the id is not numeric.
            AccessError: the person has a role here, or the giver may not decide.
        """
        await asyncio.shield(self._decline(channel, sender_id, giver))

    async def set_audience(
        self, channel: str, group: str, audience: Audience, giver: str, *, title: str = ""
    ) -> GroupAudience:
        """Decide who may speak in a group; the same again writes nothing.

        Raises:
            ConfigError: the channel is not configured, the id is not numeric, or the configuration lets everybody in.
            AccessError: the giver is not an owner.
        """
        return await asyncio.shield(self._set_audience(channel, group, audience, giver, title))

    async def revoke(self, channel: str, sender_id: str, giver: str) -> None:
        """Revoke what was granted, and invalidate the person's open codes.

        Raises:
            ConfigError: the configuration lists the id; only that list can remove it.
            AccessError: there is nothing to revoke, or the giver may not.
        """
        await asyncio.shield(self._revoke(channel, sender_id, giver))

    async def grant_reading(self, source: str, reader: str, giver: str) -> ReadingGrant:
        """Let one session read what was said in another one; if it may already, write nothing.

        Raises:
            ConfigError: one of them is no session, or both are the same.
            AccessError: the giver is not an owner.
        """
        return await asyncio.shield(self._grant_reading(source, reader, giver))

    async def revoke_reading(self, source: str, reader: str, giver: str) -> None:
        """Take back that one session reads another one; it holds at the next step of a running turn.

        Raises:
            ConfigError: one of them is no session, or both are the same.
            AccessError: there is nothing to revoke, or the giver is not an owner.
        """
        await asyncio.shield(self._revoke_reading(source, reader, giver))

    async def grant_audit(self, auditor: str, session: str, giver: str) -> AuditGrant:
        """Let an auditor see the tape of a session; one who may already is left as it is.

        Args:
            auditor: an account such as `telegram:42`, or a name.
            session: the session.
            giver: `terminal` or `channel:id`.

        Raises:
            ConfigError: the auditor or the session cannot be that.
            AccessError: the giver is not an owner.
        """
        return await asyncio.shield(self._grant_audit(auditor, session, giver))

    async def revoke_audit(self, auditor: str, session: str, giver: str) -> None:
        """Take back that an auditor sees the tape of a session; it holds for the next page. Raise as `grant_audit`.

        It raises `AccessError` too if there is nothing to revoke.
        """
        await asyncio.shield(self._revoke_audit(auditor, session, giver))

    def pending_claim(self, account: AccountKey) -> LinkCode | None:
        """Return the code of an account that another account has typed and that waits for a yes; None for none."""
        now = self._now()
        codes = [code for code in self._state.link_codes if code.account == account and code.claimant is not None]
        return next((code for code in reversed(codes) if code.is_open(now)), None)

    async def create_link_code(self, account: AccountKey, session: str) -> str | LinkRefusal:
        """Return a new code for an account, which replaces its older ones: 8 characters; or why there is none."""
        return await asyncio.shield(self._create_link_code(account, session))

    async def claim_link(self, text: str, account: AccountKey, send: SendClaim) -> LinkCode | LinkRefusal:
        """Claim that an account belongs to the person who got a code; return the code, or why it is refused.

        The account of the code has to confirm it (`confirm_link`); `send` asks it to.
        """
        return await asyncio.shield(self._claim_link(text, account, send))

    async def confirm_link(self, account: AccountKey) -> AccountKey | LinkRefusal:
        """Link an account with the one that claimed its code; return that account, or why nothing was linked."""
        return await asyncio.shield(self._confirm_link(account))

    async def decline_link(self, account: AccountKey) -> AccountKey | LinkRefusal:
        """Refuse the account that claimed the code of this one; return it, or why there was nothing to refuse."""
        return await asyncio.shield(self._decline_link(account))

    async def unlink(self, account: AccountKey) -> tuple[AccountKey, ...] | LinkRefusal:
        """Take an account out of those of its person; return the others, or why nothing changed."""
        return await asyncio.shield(self._unlink(account))

    async def _create_link_code(self, account: AccountKey, session: str) -> str | LinkRefusal:
        async with self._lock:
            now = await self._refresh()
            issued = [code.issued for code in self._state.link_codes if code.account == account]
            if sum(-CLOCK_SKEW <= now - at < CODE_LIFETIME for at in issued) >= MAX_LINK_CODES_PER_HOUR:
                return "often"
            if len(self._state.linked_accounts(account)) >= MAX_LINKED_ACCOUNTS:
                return "many"
            text = self._make_code()
            salt = self._random(16)
            data = {
                "channel": account[0],
                "id": account[1],
                "session": session,
                "salt": salt.hex(),
                "digest": _digest(salt, text).hex(),
                "expires": timestamp(now + LINK_CODE_LIFETIME),
            }
            await self._write(event(LINK_CODE, data))
            return text

    async def _claim_link(self, text: str, account: AccountKey, send: SendClaim) -> LinkCode | LinkRefusal:
        async with self._lock:
            now = await self._refresh()
            try:
                normal = _normalize_code(text)
            except ConfigError:
                return "malformed"
            giver = ":".join(account)
            if self._count_refusals(giver, now) >= MAX_WRONG_CODES:
                return "wrong"
            matches = [
                code for code in self._state.link_codes if compare_digest(_digest(code.salt, normal), code.digest)
            ]
            code = matches[-1] if matches else None
            if code is None:
                await self._write(event(CODE_REFUSED, {"by": giver, "reason": "unknown"}))
                return "unknown"
            if refusal := self._refuse_claim(code, account, now):
                return refusal
            if code.claimant is None:
                data = {"code": code.entry, "channel": account[0], "id": account[1]}
                fact = event(LINK_CLAIMED, data, key=f"link_claimed:{code.entry}")
                self._is_current = False  # another writer stores the fact; if that fails, the tape is read again
                await send(code, fact)
                await self._refresh()
            return code

    def _refuse_claim(self, code: LinkCode, account: AccountKey, now: datetime) -> LinkRefusal | None:
        if code.account == account:
            return "own"
        persons = [self._state.linked_accounts(one) for one in (code.account, account)]
        if account in persons[0]:
            return "linked"
        if code.status == "used" or code.claimant not in (None, account):
            return "used"
        if not code.is_open(now):
            return "expired"
        return "many" if sum(map(len, persons)) > MAX_LINKED_ACCOUNTS else None

    async def _confirm_link(self, account: AccountKey) -> AccountKey | LinkRefusal:
        async with self._lock:
            now = await self._refresh()
            code = self.pending_claim(account)
            if code is None or code.claimant is None:
                return "none"
            if refusal := self._refuse_claim(code, code.claimant, now):
                return refusal
            data = {
                "code": code.entry,
                "channel": account[0],
                "id": account[1],
                "other_channel": code.claimant[0],
                "other": code.claimant[1],
            }
            await self._write(event(LINKED, data, key=f"linked:{code.entry}"))
            log.info("accounts linked", extra={"action": "access.linked", **data})
            return code.claimant

    async def _decline_link(self, account: AccountKey) -> AccountKey | LinkRefusal:
        async with self._lock:
            await self._refresh()
            code = self.pending_claim(account)
            if code is None or code.claimant is None:
                return "none"
            await self._write(event(LINK_DECLINED, {"code": code.entry}, key=f"link_declined:{code.entry}"))
            return code.claimant

    async def _unlink(self, account: AccountKey) -> tuple[AccountKey, ...] | LinkRefusal:
        async with self._lock:
            await self._refresh()
            others = tuple(other for other in self._state.linked_accounts(account) if other != account)
            if not others:
                return "alone"
            await self._write(event(UNLINKED, {"channel": account[0], "id": account[1]}))
            log.info("account unlinked", extra={"action": "access.unlinked", "channel": account[0], "id": account[1]})
            return others

    def _count_refusals(self, giver: str, now: datetime) -> int:
        """Count the wrong codes of a giver within the last hour."""
        times = [at for by, at in self._state.refusals if by == giver]
        return sum(-CLOCK_SKEW <= now - at < CODE_LIFETIME for at in times)

    async def _refresh(self) -> datetime:
        """Make sure that the tape has been read, forget old codes, and return the time."""
        now = self._now()
        if not self._is_current:
            await self._projected.catch_up()
            self._is_current = True
        self._state = self._projected.state.drop_before(now - CODE_RETENTION)
        return now

    async def _write(self, *entries: TapeEntry) -> None:
        await self._projected.write_checkpoint()  # first: what is written below counts even if this fails
        try:
            stored = await self._tape.append(entries)
        except BaseException:
            self._is_current = False  # the append may have succeeded anyway: the next change reads the tape again
            raise
        await self._projected.follow(stored)
        self._state = self._projected.state.drop_before(self._now() - CODE_RETENTION)

    async def _pair(self, sender: Sender, channel: str, chat: str) -> str | None:
        async with self._lock:
            now = await self._refresh()
            if sender.bot or not is_id(sender.id) or not is_id(chat):
                return None
            if self.role(channel, sender.id) is not Role.STRANGER or not self._may_have_code(channel, sender.id, now):
                return None
            text = self._make_code()
            salt = self._random(16)
            data = {
                "channel": channel,
                "id": sender.id,
                "chat": chat,
                "name": clean(sender.name[:MAX_STORED_NAME_CHARS]),
                "salt": salt.hex(),
                "digest": _digest(salt, text).hex(),
                "expires": timestamp(now + CODE_LIFETIME),
            }
            await self._write(event(CODE, data))
            log.info("pairing code given", extra={"action": "access.code", "channel": channel, "id": sender.id})
            return text

    async def _remind(self, sender: Sender, channel: str, send: SendReminder) -> bool:
        async with self._lock:
            now = await self._refresh()
            own = [code for code in self._state.codes if (code.channel, code.id) == (channel, sender.id)]
            is_stranger = self.role(channel, sender.id) is Role.STRANGER and not sender.bot
            if not is_stranger or not own or own[-1].is_reminded or not own[-1].is_open(now):
                return False
            code = own[-1]
            fact = event(CODE_REMINDED, {"code": code.entry}, key=f"reminded:{code.entry}")
            again = code.issued + MIN_CODE_INTERVAL
            self._is_current = False  # another writer stores the fact; if that fails, the tape is read again
            await send(CodeReminder(code.issued, code.expires, again, ACCESS_TAPE, fact))
            await self._refresh()
            return True

    async def _then_welcome(self, granting: Awaitable[RoleGrant]) -> RoleGrant:
        grant = await granting
        await self._on_granted(grant.channel, grant.id)
        return grant

    async def _request(self, sender: Sender, channel: str, chat: str, send: SendRequest) -> bool:
        async with self._lock:
            now = await self._refresh()
            if self.role(channel, sender.id) is not Role.STRANGER or self._find_request(channel, sender.id, now):
                return False
            name = clean(sender.name[:MAX_STORED_NAME_CHARS])
            key = f"requested:{channel}:{sender.id}:{timestamp(now)}"
            fact = event(REQUESTED, {"channel": channel, "id": sender.id, "chat": chat, "name": name}, key=key)
            self._is_current = False  # another writer stores the fact; if that fails, the tape is read again
            was_sent = await send(AccessRequest(ACCESS_TAPE, fact))
            await self._refresh()
            return was_sent

    def _find_request(self, channel: str, sender_id: str, now: datetime) -> TapeEntry | None:
        """Return the newest fact about a person of whom an owner was asked within a day."""
        for entry in self._state.requests:
            moment = parse_moment(entry.date)
            if (entry.data["channel"], entry.data["id"]) == (channel, sender_id) and moment is not None:
                return entry if -CLOCK_SKEW <= now - moment < REQUEST_INTERVAL else None
        return None

    async def _decline(self, channel: str, sender_id: str, by: str) -> None:
        async with self._lock:
            now = await self._refresh()
            self._check_channel(channel)
            sender_id = numeric_id(sender_id)
            self._check_giver(by, Role.MEMBER)
            if (role := self.role(channel, sender_id)) is not Role.STRANGER:
                raise AccessError(f"{sender_id} is {role.value} on {channel}: bubbot access revoke takes that back")
            newest = self._find_request(channel, sender_id, now)
            if newest is None or newest.name != DECLINED:
                await self._write(event(DECLINED, {"channel": channel, "id": sender_id, "by": by}))

    async def _set_audience(self, channel: str, group: str, audience: Audience, by: str, title: str) -> GroupAudience:
        async with self._lock:
            await self._refresh()
            self._check_channel(channel)
            group = numeric_id(group)
            self._check_giver(by, Role.OWNER)
            if audience != "everybody" and group in self._configured[channel].groups:
                raise ConfigError(
                    f"[channels.{channel}] lets everybody in {group} speak, and nothing changed: "
                    "take it out of groups there, or out of guilds, then run bubbot reload"
                )
            before = self._state.groups.get((channel, group))
            if before is None or before.audience != audience:
                data = {"channel": channel, "group": group, "audience": audience, "by": by}
                title = clean(title[:MAX_STORED_NAME_CHARS]) or (before.title if before else "")
                await self._write(event(GROUP, {**data, "title": title}))
                log.info("audience of a group changed", extra={"action": "access.group", **data})
            return self._state.groups[channel, group]

    def _name_of(self, channel: str, sender_id: str) -> str:
        """Return the newest name of a person who waits; empty if unknown."""
        names = [code.name for code in self._state.codes if (code.channel, code.id) == (channel, sender_id)]
        return names[-1] if names else ""

    def _make_code(self) -> str:
        """Draw a code: each letter is as likely as the others, since 256 is a multiple of their number."""
        return "".join(CODE_ALPHABET[byte % len(CODE_ALPHABET)] for byte in self._random(CODE_LENGTH))

    def _may_have_code(self, channel: str, sender_id: str, now: datetime) -> bool:
        issued = [code for code in self._state.codes if code.channel == channel and code.issued - now <= CLOCK_SKEW]
        own = [code for code in issued if code.id == sender_id]
        if any(now - code.issued < MIN_CODE_INTERVAL for code in own):
            return False
        if sum(code.is_open(now) for code in own) >= MAX_OPEN_CODES_PER_SENDER:
            return False
        if _has_codes_left([code.issued for code in issued], now):
            return True
        warned = self._warned.get(channel)
        if warned is None or not timedelta(0) <= now - warned < CODE_LIFETIME:
            self._warned[channel] = now
            log.warning(
                "pairing codes used up, further strangers get no answer: channel %s; "
                "`bubbot access grant` lets somebody in without a code",
                channel,
                extra={"action": "access.codes_used_up", "channel": channel},
            )
        return False

    async def _approve(self, code: str, role: Role, by: str) -> RoleGrant:
        async with self._lock:
            now = await self._refresh()
            text = _normalize_code(code)
            _check_role(role)
            self._check_giver(by, role)
            failures = [
                at for giver, at in self._state.refusals if giver == by and -CLOCK_SKEW <= now - at < CODE_LIFETIME
            ]
            if len(failures) >= MAX_WRONG_CODES:
                until = timestamp(failures[-MAX_WRONG_CODES] + CODE_LIFETIME)[11:16]
                raise AccessError(f"{MAX_WRONG_CODES} codes were wrong within an hour: try again after {until} UTC")
            pairing = self._find(text)
            reason = _refusal_reason(pairing, now)
            if pairing is None or reason:
                await self._write(event(CODE_REFUSED, {"by": by, "reason": reason}))
                log.info("pairing code refused: %s", reason, extra={"action": "access.code_refused", "by": by})
                raise AccessError(_REFUSALS[reason])
            self._check_channel(pairing.channel)
            role = higher_role(role, self._state.role(pairing.channel, pairing.id))  # an approval takes nothing away
            grant = _grant_entry(pairing.channel, pairing.id, role, by, how="code", name=pairing.name)
            used = event(CODE_USED, {"code": pairing.entry, "by": by}, key=f"code_used:{pairing.entry}")
            before = self._state.role(pairing.channel, pairing.id)
            await self._write(grant, used)
            account = {"channel": pairing.channel, "id": pairing.id, "by": by}
            log.info("pairing code used", extra={"action": "access.code_used", **account})
            _log_role(before, role, account)
            return self._state.grants[pairing.channel, pairing.id]

    def _find(self, text: str) -> PairingCode | None:
        """Find the code of this text. Compare every code, each in constant time, also after a match."""
        matches = [code for code in self._state.codes if compare_digest(_digest(code.salt, text), code.digest)]
        return matches[-1] if matches else None

    async def _grant(self, channel: str, sender_id: str, role: Role, by: str) -> RoleGrant:
        async with self._lock:
            await self._refresh()
            self._check_channel(channel)
            sender_id = numeric_id(sender_id)
            if (
                sender_id.startswith("-")
                or (channel, sender_id) in self._state.groups
                or await self._is_group(channel, sender_id)
            ):
                raise ConfigError(
                    f"{sender_id} is a group on {channel}, not a person, and nothing changed: "
                    f"bubbot access group {channel} {sender_id} everybody lets everybody there talk"
                )
            _check_role(role)
            self._check_giver(by, higher_role(role, self.role(channel, sender_id)))
            before = self._state.grants.get((channel, sender_id))
            if before is None or before.role is not role:
                name = self._name_of(channel, sender_id)
                await self._write(_grant_entry(channel, sender_id, role, by, how="command", name=name))
                granted = before.role if before else Role.STRANGER
                _log_role(granted, role, {"channel": channel, "id": sender_id, "by": by})
            return self._state.grants[channel, sender_id]

    async def _revoke(self, channel: str, sender_id: str, by: str) -> None:
        async with self._lock:
            await self._refresh()
            sender_id = numeric_id(sender_id)
            listed = self._configured.get(channel, NO_LISTED_PEOPLE)
            for key in ("owners", "admins", "members"):
                if sender_id in getattr(listed, key):
                    raise ConfigError(
                        f"{sender_id} is in [channels.{channel}] {key}, and nothing was revoked: "
                        "take it out of that list and start bubbot again"
                    )
            is_auditor = bool(self._state.audited_sessions((channel, sender_id)))
            if (channel, sender_id) not in self._state.grants and not is_auditor:
                raise AccessError(f"{sender_id} has no grant on {channel}: bubbot access list shows who has one")
            self._check_giver(by, self.role(channel, sender_id))
            before = self._state.role(channel, sender_id)
            await self._write(event(REVOKED, {"channel": channel, "id": sender_id, "by": by}))
            _log_role(before, Role.STRANGER, {"channel": channel, "id": sender_id, "by": by})

    async def _grant_reading(self, source: str, reader: str, by: str) -> ReadingGrant:
        async with self._lock:
            await self._refresh()
            source, reader = await self._find_sessions(source, reader)
            self._check_giver(by, Role.OWNER)
            if (source, reader) not in self._state.readings:
                await self._write(event(READING_GRANTED, {"source": source, "reader": reader, "by": by}))
                sessions = {"source": source, "reader": reader, "by": by}
                log.info("reading granted", extra={"action": "access.reading_granted", **sessions})
            return self._state.readings[source, reader]

    async def _revoke_reading(self, source: str, reader: str, by: str) -> None:
        async with self._lock:
            await self._refresh()
            typed, (source, reader) = (source, reader), await self._find_sessions(source, reader)
            if typed in self._state.readings:  # granted by another id of the chat, before ids led to its session
                source, reader = typed
            self._check_giver(by, Role.OWNER)
            if (source, reader) not in self._state.readings:
                raise AccessError(f"{reader} has no grant to read {source}: bubbot access readings shows them all")
            await self._write(event(READING_REVOKED, {"source": source, "reader": reader, "by": by}))
            sessions = {"source": source, "reader": reader, "by": by}
            log.info("reading revoked", extra={"action": "access.reading_revoked", **sessions})

    async def _grant_audit(self, auditor: str, session: str, by: str) -> AuditGrant:
        async with self._lock:
            await self._refresh()
            account, session = self._parse_auditor(auditor), await self._find_audited(session)
            self._check_giver(by, Role.OWNER)
            if (account, session) not in self._state.audits:
                await self._write(event(AUDIT_GRANTED, _audit_data(account, session, by)))
                log.info(
                    "audit granted",
                    extra={"action": "access.audit_granted", "auditor": auditor, "session": session, "by": by},
                )
            return self._state.audits[account, session]

    async def _revoke_audit(self, auditor: str, session: str, by: str) -> None:
        async with self._lock:
            await self._refresh()
            account, typed = parse_auditor(auditor), session
            session = typed if (account, typed) in self._state.audits else await self._find_audited(session)
            self._check_giver(by, Role.OWNER)
            if (account, session) not in self._state.audits:
                name = format_auditor(account)
                raise AccessError(f"{name} may not see {session}: bubbot access audits shows what auditors may see")
            await self._write(event(AUDIT_REVOKED, _audit_data(account, session, by)))
            log.info(
                "audit revoked",
                extra={"action": "access.audit_revoked", "auditor": auditor, "session": session, "by": by},
            )

    async def _find_sessions(self, source: str, reader: str) -> tuple[str, str]:
        """Return the ids of two sessions. Raise `ConfigError` if one is none, or if they are the same."""
        for name in (source, reader):
            require_user_tape(name.strip(), "read by grant")
        found = [await self._first_session(parse_session(name)) for name in (source, reader)]
        if found[0] == found[1]:
            raise ConfigError(f"{found[0]} reads its own tape without a grant: name two different chats")
        return found[0], found[1]

    async def _find_audited(self, session: str) -> str:
        require_user_tape(session.strip(), "shown to an auditor")
        return await self._first_session(parse_session(session))

    def _parse_auditor(self, auditor: str) -> AccountKey:
        account = parse_auditor(auditor)
        if account[0]:
            self._check_channel(account[0])
        return account

    def _check_channel(self, channel: str) -> None:
        if channel not in self._configured:
            names = ", ".join(sorted(self._configured)) or "none"
            raise ConfigError(
                f"{channel!r} is not a configured channel (configured: {names}): name the X of [channels.X]"
            )

    def _check_giver(self, by: str, role: Role) -> None:
        """Raise if the giver has less than the role, or is only a member."""
        channel, _, sender_id = by.rpartition(":")
        own = Role.OWNER if by == TERMINAL else self.role(channel, sender_id)
        if not (own.at_least(Role.ADMIN) and own.at_least(role)):
            raise AccessError(f"{by} is {own.value} here, which is not enough to decide about {role.value}")


def parse_auditor(text: str) -> AccountKey:
    """Return the account that a text such as `telegram:42` names, or a name without a channel. Raise `ConfigError`."""
    channel, _, number = text.strip().rpartition(":")
    if channel:
        return channel, numeric_id(number)
    if not re.fullmatch(AUDITOR_NAME, number):
        raise ConfigError(
            f"{text!r} is not an auditor: use an account such as telegram:42, or a name of 1 to 32 small letters, "
            "digits, dots, hyphens and underscores"
        )
    return "", number


def _audit_data(account: AccountKey, session: str, by: str) -> dict[str, str]:
    return {"channel": account[0], "id": account[1], "session": session, "by": by}


def _log_role(before: Role, role: Role, account: Mapping[str, str]) -> None:
    """Log a changed grant: numeric ids only, as people choose their names themselves."""
    log.info("role changed: %s, before %s", role, before, extra={"action": "access.role", **account})


def _check_role(role: Role) -> None:
    if role is Role.STRANGER:
        raise ConfigError(f"{role.value} cannot be granted: use member, admin or owner, or revoke")


def _grant_entry(
    channel: str, sender_id: str, role: Role, by: str, *, how: Literal["code", "command"], name: str = ""
) -> TapeEntry:
    data = {"channel": channel, "id": sender_id, "role": role.value, "by": by, "how": how, "name": name}
    return event(GRANTED, data)


def _digest(salt: bytes, text: str) -> bytes:
    return sha256(salt + text.encode()).digest()


def _normalize_code(code: str) -> str:
    """Return the code in the form it was given out, from what a person typed. Raise `ConfigError`."""
    chars = "".join(char for char in code if not char.isspace() and char not in "-\N{EN DASH}")
    text = chars.upper() if chars.isascii() else ""  # ß would become SS
    if len(text) != CODE_LENGTH or any(char not in CODE_ALPHABET for char in text):
        raise ConfigError(
            f"this is not a pairing code: a code has {CODE_LENGTH} letters and digits (never 0, 1, I or O), as 7KQ2M9XB"
        )
    return text


def _has_codes_left(issued: Iterable[datetime], now: datetime) -> bool:
    """Return true if a channel that gave out codes at these times may give another one."""
    today = sorted(at for at in issued if now - at < CODE_RETENTION)
    allowance, before = float(MAX_CODES_IN_A_ROW), now - CODE_RETENTION
    for at in today:
        allowance = min(MAX_CODES_IN_A_ROW, allowance + (at - before) / CODE_INTERVAL) - 1
        before = at
    return allowance + (now - before) / CODE_INTERVAL >= 1 and len(today) < MAX_CODES_PER_DAY


def _refusal_reason(pairing: PairingCode | None, now: datetime) -> Literal["", "unknown", "used", "expired"]:
    if pairing is None:
        return "unknown"
    if pairing.status == "used":
        return "used"
    return "" if pairing.is_open(now) else "expired"


_REFUSALS = MappingProxyType(
    {
        "unknown": "no such code was given out: compare it with what the person was sent",
        "used": "this code was used before, and a code works once: the person may write again for another one",
        "expired": "this code has expired, after an hour or a revocation: the person may write again for another one",
    }
)
