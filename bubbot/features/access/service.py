"""People who may speak: grants, revocations and pairing codes, each a fact on the tape `bubbot/access`.

The configured lists are fixed: nothing here takes away from them. `docs/concepts/access.md` explains access,
`docs/reference/tape-format.md` lists the events.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import datetime, timedelta
from hashlib import sha256
from hmac import compare_digest
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

from bubbot.command import TERMINAL, Caller, command
from bubbot.concurrency import uninterrupted
from bubbot.errors import CommandRefused, ConfirmationNeeded, ValueInvalid
from bubbot.features.access.arguments import (
    AudienceArgs,
    AuditArgs,
    CodeArgs,
    GrantArgs,
    HistoryArgs,
    PersonArgs,
    ReadingArgs,
)
from bubbot.features.access.facts import (
    AccessDeclined,
    AccessRequested,
    AccessRevoked,
    AccountsLinked,
    AccountUnlinked,
    Audit,
    CodeRefused,
    CodeReminded,
    CodeUsed,
    GroupAudience,
    LinkClaimed,
    LinkCode,
    LinkDeclined,
    PairingCode,
    Reading,
    RoleGranted,
)
from bubbot.features.access.matrix import AccessMatrix, find_chats, queries_of_chats
from bubbot.features.access.results import (
    AccessChange,
    AccessEvent,
    AccessList,
    AccessRight,
    AccessRow,
    AuditChange,
    AuditRow,
    GroupChange,
    GroupRow,
    PendingCode,
    PersonAccess,
    PersonDeclined,
    ReadingChange,
    ReadingRow,
    format_name,
    parse_audience,
    parse_role,
)
from bubbot.features.access.state import (
    ACCESS_PROJECTION,
    CLOCK_SKEW,
    AccessHistoryView,
    AccessState,
    AccountKey,
    LinkState,
    PairingState,
    expires_at,
    issued_at,
)
from bubbot.formatting import clean
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
from bubbot.tape.entry import TapeEntry, timestamp
from bubbot.tape.fact import Cited, Fact
from bubbot.tape.handle import Clock, TapeHandle
from bubbot.tape.projection import ProjectionRunner
from bubbot.tape.query import parse_moment
from bubbot.tool import ADMINISTERS, READS_PEOPLE, CommandHelp, HelpTopic

log = logging.getLogger(__name__)

ACCESS_TAPE = ACCESS_PROJECTION.tapes
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
SendClaim: TypeAlias = Callable[[Cited[LinkCode], TapeEntry], Awaitable[None]]
"""Ask the account of a code to confirm, and store the fact that it was claimed, in one transaction."""
OnGranted: TypeAlias = Callable[[str, str], Awaitable[None]]
"""Called with channel and id once a person has a role by a grant, and again if the same is granted again."""
IsGroup: TypeAlias = Callable[[str, str], Awaitable[bool]]
"""Return true if an id on a channel is known to be that of a group or a space, not of a person."""
RandomBytes: TypeAlias = Callable[[int], bytes]
"""Return that many random bytes; passed in, so that tests can choose them."""


def _help(brief: str, *examples: str) -> CommandHelp:
    """Return what people are told of a command of access."""
    return CommandHelp(HelpTopic.ADMIN, brief, examples)


_CHANGES: Mapping[str, Any] = MappingProxyType({"role": Role.ADMIN, "effect": ADMINISTERS, "is_direct": True})
"""Commands that let people in: admins may, up to their own role."""
_GRANTS: Mapping[str, Any] = MappingProxyType({"role": Role.OWNER, "effect": ADMINISTERS, "is_direct": True})
"""Commands about which tapes are seen: for owners."""
_LISTS: Mapping[str, Any] = MappingProxyType({"role": Role.OWNER, "effect": READS_PEOPLE, "is_direct": True})
"""Commands that show who may do what, of all chats: for owners."""


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
        on_granted: OnGranted | None = None,
        is_group: IsGroup | None = None,
    ) -> None:
        self._tape = tape
        self._on_granted = on_granted
        self._is_group = is_group
        self._first_session = first_session
        self._now = now
        self._random = random
        self._configured = MappingProxyType(dict(configured or {}))
        projections = projections or ProjectionRunner()
        self._projected = projections.project(ACCESS_PROJECTION, tape)
        self._recent, self._recent_at = AccessState(), 0
        self._is_current = False
        self._warned: dict[str, datetime] = {}
        self._lock = projections.lock(tape.name)

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

    @property
    def _state(self) -> AccessState:
        if self._recent_at != self._projected.position:  # others wrote, or another service has read on
            self._drop_old(self._now())
        return self._recent

    def _drop_old(self, now: datetime) -> None:
        """Take over the state from the facts, without old codes."""
        self._recent, self._recent_at = (
            self._projected.state.drop_before(now - CODE_RETENTION),
            self._projected.position,
        )

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
        decided = self._state.groups.find((channel, group))
        return parse_audience(decided.fact.audience) if decided else None

    def list_groups(self) -> tuple[Cited[GroupAudience], ...]:
        """Return what was decided about groups, in their order."""
        return tuple(sorted(self._state.groups, key=lambda each: each.fact.subject))

    def may_read(self, reader: str, source: str) -> bool:
        """Return true if one session was granted to read another one. Read nothing."""
        return (source, reader) in self._state.readings

    def list_people(self, channel: str) -> tuple[str, ...]:
        """Return the numeric ids of those who may speak on a channel, configured or granted."""
        granted = [each.fact.id for each in self._state.grants if each.fact.channel == channel]
        return tuple(dict.fromkeys([*self._configured.get(channel, NO_LISTED_PEOPLE).listed_roles(), *granted]))

    async def load(self) -> None:
        """Read the tape, once; later changes update the state."""
        async with self._lock:
            await self._refresh()

    def pending_codes(self) -> tuple[Cited[PairingCode], ...]:
        """Return the codes that can be approved now, oldest first."""
        now = self._now()
        return tuple(each.code for each in self._state.codes if each.is_open(now))

    # What people do

    @command("access list", **_LISTS)
    async def list_access(self) -> AccessList:
        """Show who may speak, in which role and why, and in which groups."""
        grants = sorted(self._state.grants, key=lambda each: (each.fact.channel, int(each.fact.id)))
        decided = (
            GroupRow(
                each.fact.channel,
                each.fact.group,
                parse_audience(each.fact.audience),
                each.fact.title,
                "decision",
                each.fact.by,
                each.date,
            )
            for each in self.list_groups()
        )
        people, groups = _configured_people(self._configured), _configured_groups(self._configured)
        return AccessList((*people, *map(self._granted_row, grants)), (*groups, *decided))

    @command(
        "access role <channel> <id>",
        chat=("access.role",),
        form="<id> channel=<channel>",
        example="telegram 42",
        role=Role.ADMIN,
        effect=READS_PEOPLE,
        is_direct=True,
        help=_help("What a person may do, and why", ",access.role 4242", ",access.role 4242 channel=telegram"),
    )
    async def find_role(self, caller: Caller, args: PersonArgs) -> PersonAccess:
        """Show what a person may do on a channel and why, and which tapes they may see as an auditor."""
        channel, sender_id = args.channel or caller.channel, numeric_id(args.id)
        account = channel, sender_id
        grant = self._state.grants.find(account)
        audits = tuple(
            _audit_row(each) for each in self._sorted_audits() if (each.fact.channel, each.fact.id) == account
        )
        if grant is None and not audits:
            self._check_channel(channel)
        configured = [row for row in _configured_people(self._configured) if (row.channel, row.id) == account]
        granted = [self._granted_row(grant)] if grant else []
        return PersonAccess(
            channel,
            sender_id,
            self.role(channel, sender_id).value,
            grant.fact.name if grant else self._name_of(channel, sender_id),
            (*configured, *granted),
            audits if caller.role is Role.OWNER else (),  # who sees which tape is for owners
        )

    @command("access pending", rows="codes", **_LISTS)
    async def list_pending(self) -> list[PendingCode]:
        """Show who was given a pairing code that still works."""
        return [
            PendingCode(each.fact.channel, each.fact.id, each.fact.name, timestamp(issued_at(each)), each.fact.expires)
            for each in self.pending_codes()
        ]

    async def _ask_approval(self, caller: Caller, args: CodeArgs) -> ConfirmationNeeded | None:
        """Name the person who got the code, in a shell; a wrong code is for the command itself to refuse."""
        if caller.turn is not None or (code := self._find_open(_normalize_code(args.code))) is None:
            return None
        fact = code.code.fact
        return ConfirmationNeeded(
            "approval_asked", id=fact.id, name=format_name(fact.name), channel=fact.channel, role=Role(args.role)
        )

    @command(
        "access approve <code>",
        chat=("access.approve",),
        form="<code> [role]",
        example="7KQ2M9XB --role owner",
        ask=_ask_approval,
        undo="access revoke",
        help=_help("Let the person with a code in", ",access.approve 7KQ2M9XB", ",access.approve 7KQ2M9XB admin"),
        **_CHANGES,
    )
    async def approve(self, caller: Caller, args: CodeArgs) -> AccessChange:
        """Let the person in who was given this code."""
        async with self._lock:
            now = await self._refresh()
            text, role = _normalize_code(args.code), Role(args.role)
            self._check_giver(caller, role)
            failures = [at for by, at in self._state.refusals if by == caller.id and _is_recent(at, now)]
            if len(failures) >= MAX_WRONG_CODES:
                again = datetime.fromisoformat(failures[-MAX_WRONG_CODES]) + CODE_LIFETIME
                until = timestamp(again)[11:16]
                raise CommandRefused("codes_wrong", number=MAX_WRONG_CODES, until=until)
            pairing = self._find(text)
            reason = _refusal_reason(pairing, now)
            if pairing is None or reason:
                await self._write(CodeRefused(caller.id, reason))
                log.info("pairing code refused: %s", reason, extra={"action": "access.code_refused", "by": caller.id})
                raise CommandRefused(f"code_{reason}")
            code = pairing.code.fact
            self._check_channel(code.channel)
            before = self._state.role(*code.account)
            role = higher_role(role, before)  # an approval takes nothing away
            grant = RoleGranted(*code.account, role.value, caller.id, how="code", name=code.name)
            used = CodeUsed(pairing.code.id, caller.id)
            await self._write(grant, used.to_entry(key=f"code_used:{pairing.code.id}"))
            account = {"channel": code.channel, "id": code.id, "by": caller.id}
            log.info("pairing code used", extra={"action": "access.code_used", **account})
            _log_role(before, role, account)
        await self._welcome(code.channel, code.id)
        return self._change(code.channel, code.id, role)

    @command(
        "access grant <channel> <id> <role>",
        chat=("access.grant",),
        form="<id> [role]",
        example="telegram 42 member",
        undo="access revoke",
        help=_help("Give a person a role", ",access.grant 4242", ",access.grant 4242 admin channel=telegram"),
        **_CHANGES,
    )
    async def grant(self, caller: Caller, args: GrantArgs) -> AccessChange:
        """Give a person a role, in place of the one granted before."""
        channel, role = args.channel or caller.channel, Role(args.role)
        async with self._lock:
            await self._refresh()
            self._check_channel(channel)
            sender_id = numeric_id(args.id)
            is_group = self._is_group is not None and await self._is_group(channel, sender_id)
            if sender_id.startswith("-") or (channel, sender_id) in self._state.groups or is_group:
                raise ValueInvalid("not_a_person", id=sender_id, channel=channel)
            self._check_giver(caller, higher_role(role, self.role(channel, sender_id)))
            before = self._state.role(channel, sender_id)
            if before is not role:
                name = self._name_of(channel, sender_id)
                await self._write(RoleGranted(channel, sender_id, role.value, caller.id, how="command", name=name))
                _log_role(before, role, {"channel": channel, "id": sender_id, "by": caller.id})
        await self._welcome(channel, sender_id)
        return self._change(channel, sender_id, role, changed=before is not role)

    @command(
        "access revoke <channel> <id>",
        chat=("access.revoke",),
        form="<id> channel=<channel>",
        example="telegram 42",
        help=_help("Take a role back", ",access.revoke 4242", ",access.revoke 4242 channel=telegram"),
        **_CHANGES,
    )
    async def revoke(self, caller: Caller, args: PersonArgs) -> AccessChange:
        """Take back what was granted."""
        channel = args.channel or caller.channel
        async with self._lock:
            await self._refresh()
            sender_id = numeric_id(args.id)
            listed = self._configured.get(channel, NO_LISTED_PEOPLE)
            for key in ("owners", "admins", "members"):
                if sender_id in getattr(listed, key):
                    raise ValueInvalid("person_configured", id=sender_id, channel=channel, key=key)
            grant = self._state.grants.find((channel, sender_id))
            if grant is None and not self._state.audited_sessions((channel, sender_id)):
                raise CommandRefused("person_without_grant", id=sender_id, channel=channel)
            self._check_giver(caller, self.role(channel, sender_id))
            before = self._state.role(channel, sender_id)
            await self._write(AccessRevoked(channel, sender_id, caller.id))
            _log_role(before, Role.STRANGER, {"channel": channel, "id": sender_id, "by": caller.id})
        return self._change(channel, sender_id, None)

    @command(
        "access decline",
        chat=("access.decline",),
        in_shell=False,
        form="<id> channel=<channel>",
        help=_help("Refuse a person who got a code", ",access.decline 4242", ",access.decline 4242 channel=telegram"),
        **_CHANGES,
    )
    async def decline(self, caller: Caller, args: PersonArgs) -> PersonDeclined:
        """Void the codes of a person who waits; I ask about that person again after a day at the earliest."""
        channel = args.channel or caller.channel
        async with self._lock:
            now = await self._refresh()
            self._check_channel(channel)
            sender_id = numeric_id(args.id)
            self._check_giver(caller, Role.MEMBER)
            if (role := self.role(channel, sender_id)) is not Role.STRANGER:
                raise CommandRefused("person_with_role", id=sender_id, channel=channel, role=role)
            newest = self._find_request(channel, sender_id, now)
            if newest is None or not isinstance(newest.fact, AccessDeclined):
                await self._write(AccessDeclined(channel, sender_id, caller.id))
        return PersonDeclined(channel, sender_id)

    @command(
        "access group <channel> <group> <who>",
        example="telegram -1001234567 everybody",
        **_GRANTS,
    )
    async def set_audience(self, caller: Caller, args: AudienceArgs) -> GroupChange:
        """Decide who may talk to the bot in a group, or on a server of Discord."""
        channel = args.channel or caller.channel
        async with self._lock:
            await self._refresh()
            self._check_channel(channel)
            group = numeric_id(args.group)
            self._check_giver(caller, Role.OWNER)
            if args.who != "everybody" and group in self._configured[channel].groups:
                raise ValueInvalid("group_configured", group=group, channel=channel)
            before = self._state.groups.find((channel, group))
            is_new = before is None or before.fact.audience != args.who
            if is_new:
                title = clean(caller.pressed_value[:MAX_STORED_NAME_CHARS]) or (before.fact.title if before else "")
                await self._write(GroupAudience(channel, group, args.who, caller.id, title))
                log.info(
                    "audience of a group changed",
                    extra={
                        "action": "access.group",
                        "channel": channel,
                        "group": group,
                        "audience": args.who,
                        "by": caller.id,
                    },
                )
        return GroupChange(channel, group, args.who, is_new)

    @command(
        "access readings",
        chat=("grant.list", "grants"),
        rows="readings",
        help=_help("Which chats may read in others", ",grants"),
        **_LISTS,
    )
    async def list_readings(self) -> list[ReadingRow]:
        """List which chats may read what was said in which others."""
        grants = sorted(self._state.readings, key=lambda each: each.fact.subject)
        return [ReadingRow(each.fact.source, each.fact.reader, each.fact.by, each.date) for each in grants]

    @command(
        "access grant-reading <source> <reader>",
        chat=("grant.add", "grant"),
        form="<source> to <reader>",
        example="telegram:42 discord:7",
        undo="access revoke-reading",
        help=_help(
            "Let one chat read in another",
            ",grant telegram:42 to discord:7",
            ",grant source=telegram:42 reader=discord:7",
        ),
        **_GRANTS,
    )
    async def grant_reading(self, caller: Caller, args: ReadingArgs) -> ReadingChange:
        """Let everybody in one chat read what was said in another one. Both are ids of sessions; ,grants lists them."""
        fact = await self._parse_reading(caller, args)
        changed = await self._set(caller, fact, granted=True)
        return ReadingChange(fact.source, fact.reader, granted=True, changed=changed)

    @command(
        "access revoke-reading <source> <reader>",
        chat=("grant.revoke",),
        form="<source> to <reader>",
        example="telegram:42 discord:7",
        help=_help(
            "Take such a grant back",
            ",grant.revoke telegram:42 to discord:7",
            ",grant.revoke source=telegram:42 reader=discord:7",
        ),
        **_GRANTS,
    )
    async def revoke_reading(self, caller: Caller, args: ReadingArgs) -> ReadingChange:
        """Take back that one chat reads what was said in another one; answers under way read no further."""
        fact = await self._parse_reading(caller, args)
        typed = Reading(args.source, args.reader, caller.id)
        if typed.subject in self._state.readings:  # granted by another id of the chat, before ids led to its session
            fact = typed
        if not await self._set(caller, fact, granted=False):
            raise CommandRefused("reading_unknown", source=fact.source, reader=fact.reader)
        return ReadingChange(fact.source, fact.reader, granted=False)

    @command(
        "access audits",
        chat=("audit.list", "audits"),
        rows="audits",
        help=_help("Which auditors see which chats", ",audits"),
        **_LISTS,
    )
    async def list_audits(self) -> list[AuditRow]:
        """List which auditors may see the tapes of which chats."""
        return [_audit_row(each) for each in self._sorted_audits()]

    @command("access matrix", rows="rights", **_LISTS)
    async def list_rights(self) -> list[AccessRight]:
        """Show what each person may do in which chat, as the bot decides it: read, write, see its memory, see its tape."""
        # Roles that a platform gives, such as those of a Discord server, are not known here.
        state = self._state
        grants = [each.fact for each in state.grants]
        accounts = {(row.channel, row.id): "" for row in _configured_people(self._configured)}
        accounts |= {each.subject: each.name for each in grants}
        accounts |= {
            (each.fact.channel, each.fact.id): ""
            for each in state.audits
            if (each.fact.channel, each.fact.id) not in accounts
        }
        named = {each.fact.session for each in state.audits}
        named |= {session for each in state.readings for session in (each.fact.source, each.fact.reader)}
        channels = sorted(
            {*self._configured, *(each.channel for each in grants), *(name.partition(":")[0] for name in named)}
        )
        found = await self._tape.fetch(queries_of_chats(channels))
        chats = find_chats((entry for entries in found for entry in entries), named)
        matrix = AccessMatrix(
            self, self._configured, chats, may_read=self.may_read, audited_sessions=state.audited_sessions
        )
        return [*matrix.list_rights(dict(sorted(accounts.items())))]

    @command(
        "access grant-audit <auditor> <session>",
        chat=("audit.add", "audit"),
        form="<auditor> of <session>",
        example="anna telegram:7",
        undo="access revoke-audit",
        help=_help("Let an auditor see a chat", ",audit telegram:42 of telegram:7", ",audit anna of telegram:-1001"),
        **_GRANTS,
    )
    async def grant_audit(self, caller: Caller, args: AuditArgs) -> AuditChange:
        """Let an auditor see the tape of one chat on the trace page. It gives no right to speak."""
        fact = await self._parse_audit(caller, args)
        if fact.channel:
            self._check_channel(fact.channel)
        changed = await self._set(caller, fact, granted=True)
        return AuditChange(fact.auditor, fact.session, granted=True, changed=changed)

    @command(
        "access revoke-audit <auditor> <session>",
        chat=("audit.revoke",),
        form="<auditor> of <session>",
        example="anna telegram:7",
        help=_help(
            "Take an audit back",
            ",audit.revoke telegram:42 of telegram:7",
            ",audit.revoke auditor=anna session=telegram:7",
        ),
        **_GRANTS,
    )
    async def revoke_audit(self, caller: Caller, args: AuditArgs) -> AuditChange:
        """Take back that an auditor sees the tape of a chat; the next page shows nothing of it."""
        fact = await self._parse_audit(caller, args)
        if not await self._set(caller, fact, granted=False):
            raise CommandRefused("audit_unknown", auditor=fact.auditor, session=fact.session)
        return AuditChange(fact.auditor, fact.session, granted=False)

    @command("access history", example="--limit 20", rows="events", **_LISTS)
    async def list_history(self, args: HistoryArgs) -> list[AccessEvent]:
        """Show every grant, revocation and code, newest first."""
        entries = await self._tape.read(AccessHistoryView(args.limit))
        return [
            AccessEvent(entry.id, entry.date, (entry.name or "").removeprefix("access/"), entry.data)
            for entry in entries
        ]

    def _sorted_audits(self) -> list[Cited[Audit]]:
        return sorted(self._state.audits, key=lambda each: each.fact.subject)

    def _granted_row(self, grant: Cited[RoleGranted]) -> AccessRow:
        fact = grant.fact
        return AccessRow(
            fact.channel,
            fact.id,
            parse_role(fact.role),
            fact.name,
            "grant",
            fact.by,
            fact.how,
            grant.date,
            fact.channel in self._configured,
        )

    async def _set(self, caller: Caller, grant: Reading | Audit, *, granted: bool) -> bool:
        """Append that an owner granted it, or took it back; return false if it is so already."""
        async with self._lock:
            await self._refresh()
            self._check_giver(caller, Role.OWNER)
            current = self._state.readings if isinstance(grant, Reading) else self._state.audits
            if (grant.subject in current) is granted:
                return False
            event = grant.EVENTS[0 if granted else 1]
            await self._write(grant.to_entry(event))
            log.info(
                event.replace("/", " ").replace("_", " "), extra={"action": event.replace("/", "."), **grant.payload()}
            )
            return True

    async def _parse_reading(self, caller: Caller, args: ReadingArgs) -> Reading:
        """Return the grant that the arguments name. Raise `ConfigError` if a chat is none, or if both are the same."""
        for name in (args.source, args.reader):
            require_user_tape(name.strip(), "read by grant")
        source, reader = [await self._first_session(parse_session(name)) for name in (args.source, args.reader)]
        if source == reader:
            raise ValueInvalid("reading_itself", session=source)
        return Reading(source, reader, caller.id)

    async def _parse_audit(self, caller: Caller, args: AuditArgs) -> Audit:
        channel, auditor = parse_auditor(args.auditor)
        typed = Audit(channel, auditor, args.session, caller.id)
        if typed.subject in self._state.audits:  # granted by another id of the chat, before ids led to its session
            return typed
        require_user_tape(args.session.strip(), "shown to an auditor")
        return Audit(channel, auditor, await self._first_session(parse_session(args.session)), caller.id)

    # Strangers

    @uninterrupted
    async def create_code(self, sender: Sender, channel: str, chat: str) -> str | None:
        """Return a new code for a stranger, or None if the bot should stay silent.

        None: the id is not numeric, it is a bot, it may speak already, it got a code less than ten minutes ago, it
        has three open ones, or the channel has given out as many as it may for now.
        """
        async with self._lock:
            now = await self._refresh()
            if sender.bot or not is_id(sender.id) or not is_id(chat):
                return None
            if self.role(channel, sender.id) is not Role.STRANGER or not self._may_have_code(channel, sender.id, now):
                return None
            text, salt = self._make_code(), self._random(16)
            name, expires = clean(sender.name[:MAX_STORED_NAME_CHARS]), timestamp(now + CODE_LIFETIME)
            digest = _digest(salt, text).hex()
            await self._write(PairingCode(channel, sender.id, chat, name, salt.hex(), digest, expires))
            log.info("pairing code given", extra={"action": "access.code", "channel": channel, "id": sender.id})
            return text

    @uninterrupted
    async def remind(self, sender: Sender, channel: str, send: SendReminder) -> bool:
        """Remind a stranger once of the newest code, if that is open; `send` stores the fact with the notice."""
        async with self._lock:
            now = await self._refresh()
            own = [each for each in self._state.codes if each.code.fact.account == (channel, sender.id)]
            is_stranger = self.role(channel, sender.id) is Role.STRANGER and not sender.bot
            if not is_stranger or not own or own[-1].is_reminded or not own[-1].is_open(now):
                return False
            code = own[-1].code
            fact = CodeReminded(code.id).to_entry(key=f"reminded:{code.id}")
            issued = issued_at(code)
            self._is_current = False  # another writer stores the fact; if that fails, the tape is read again
            await send(CodeReminder(issued, expires_at(code), issued + MIN_CODE_INTERVAL, ACCESS_TAPE, fact))
            await self._refresh()
            return True

    @uninterrupted
    async def request(self, sender: Sender, channel: str, chat: str, send: SendRequest) -> bool:
        """Ask an owner about a stranger, at most once in a day; `send` stores the fact with the question."""
        async with self._lock:
            now = await self._refresh()
            if self.role(channel, sender.id) is not Role.STRANGER or self._find_request(channel, sender.id, now):
                return False
            fact = AccessRequested(channel, sender.id, chat, clean(sender.name[:MAX_STORED_NAME_CHARS]))
            self._is_current = False  # another writer stores the fact; if that fails, the tape is read again
            key = f"requested:{channel}:{sender.id}:{timestamp(now)}"
            was_sent = await send(AccessRequest(ACCESS_TAPE, fact.to_entry(key=key)))
            await self._refresh()
            return was_sent

    def _find_request(
        self, channel: str, sender_id: str, now: datetime
    ) -> Cited[AccessRequested | AccessDeclined] | None:
        """Return the newest fact about a person of whom an owner was asked within a day."""
        found = self._state.requests.find((channel, sender_id))
        moment = parse_moment(found.date) if found else None
        return found if moment is not None and -CLOCK_SKEW <= now - moment < REQUEST_INTERVAL else None

    def _name_of(self, channel: str, sender_id: str) -> str:
        """Return the newest name of a person who waits; empty if unknown."""
        codes = [each.code.fact for each in self._state.codes if each.code.fact.account == (channel, sender_id)]
        return codes[-1].name if codes else ""

    def _make_code(self) -> str:
        """Draw a code: each letter is as likely as the others, since 256 is a multiple of their number."""
        return "".join(CODE_ALPHABET[byte % len(CODE_ALPHABET)] for byte in self._random(CODE_LENGTH))

    def _may_have_code(self, channel: str, sender_id: str, now: datetime) -> bool:
        of_channel = [each for each in self._state.codes if each.code.fact.channel == channel]
        issued = [each for each in of_channel if issued_at(each.code) - now <= CLOCK_SKEW]
        own = [each for each in issued if each.code.fact.id == sender_id]
        if any(now - issued_at(each.code) < MIN_CODE_INTERVAL for each in own):
            return False
        if sum(each.is_open(now) for each in own) >= MAX_OPEN_CODES_PER_SENDER:
            return False
        if _has_codes_left([issued_at(each.code) for each in issued], now):
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

    def _find(self, text: str) -> PairingState | None:
        """Find the code of this text. Compare every code, each in constant time, also after a match."""
        matches = [each for each in self._state.codes if _is_code(each.code, text)]
        return matches[-1] if matches else None

    def _find_open(self, text: str) -> PairingState | None:
        """Find the code of this text, if it can be approved."""
        found = self._find(text)
        return found if found is not None and found.is_open(self._now()) else None

    # People with several accounts

    def pending_claim(self, account: AccountKey) -> LinkState | None:
        """Return the code of an account that another account has typed and that waits for a yes; None for none."""
        now = self._now()
        codes = [each for each in self._state.link_codes if each.code.fact.account == account and each.claimant]
        return next((each for each in reversed(codes) if each.is_open(now)), None)

    @uninterrupted
    async def create_link_code(self, account: AccountKey, session: str) -> str | LinkRefusal:
        """Return a new code for an account, which replaces its older ones: 8 characters; or why there is none."""
        async with self._lock:
            now = await self._refresh()
            issued = [issued_at(each.code) for each in self._state.link_codes if each.code.fact.account == account]
            if sum(-CLOCK_SKEW <= now - at < CODE_LIFETIME for at in issued) >= MAX_LINK_CODES_PER_HOUR:
                return "often"
            if len(self._state.linked_accounts(account)) >= MAX_LINKED_ACCOUNTS:
                return "many"
            text, salt = self._make_code(), self._random(16)
            expires = timestamp(now + LINK_CODE_LIFETIME)
            await self._write(LinkCode(*account, session, salt.hex(), _digest(salt, text).hex(), expires))
            return text

    @uninterrupted
    async def claim_link(self, text: str, account: AccountKey, send: SendClaim) -> Cited[LinkCode] | LinkRefusal:
        """Claim that an account belongs to the person who got a code; return the code, or why it is refused.

        The account of the code has to confirm it (`confirm_link`); `send` asks it to.
        """
        async with self._lock:
            now = await self._refresh()
            try:
                normal = _normalize_code(text)
            except ValueInvalid:
                return "malformed"
            giver = ":".join(account)
            if sum(by == giver and _is_recent(at, now) for by, at in self._state.refusals) >= MAX_WRONG_CODES:
                return "wrong"
            matches = [each for each in self._state.link_codes if _is_code(each.code, normal)]
            if not matches:
                await self._write(CodeRefused(giver, "unknown"))
                return "unknown"
            if refusal := self._refuse_claim(matches[-1], account, now):
                return refusal
            code = matches[-1].code
            if matches[-1].claimant is None:
                fact = LinkClaimed(code.id, *account).to_entry(key=f"link_claimed:{code.id}")
                self._is_current = False  # another writer stores the fact; if that fails, the tape is read again
                await send(code, fact)
                await self._refresh()
            return code

    def _refuse_claim(self, link: LinkState, account: AccountKey, now: datetime) -> LinkRefusal | None:
        owner = link.code.fact.account
        if owner == account:
            return "own"
        persons = [self._state.linked_accounts(one) for one in (owner, account)]
        if account in persons[0]:
            return "linked"
        if link.status == "used" or link.claimant not in (None, account):
            return "used"
        if not link.is_open(now):
            return "expired"
        return "many" if sum(map(len, persons)) > MAX_LINKED_ACCOUNTS else None

    @uninterrupted
    async def confirm_link(self, account: AccountKey) -> AccountKey | LinkRefusal:
        """Link an account with the one that claimed its code; return that account, or why nothing was linked."""
        async with self._lock:
            now = await self._refresh()
            link = self.pending_claim(account)
            if link is None or link.claimant is None:
                return "none"
            if refusal := self._refuse_claim(link, link.claimant, now):
                return refusal
            fact = AccountsLinked(link.code.id, *account, *link.claimant)
            await self._write(fact.to_entry(key=f"linked:{link.code.id}"))
            log.info("accounts linked", extra={"action": "access.linked", **fact.payload()})
            return link.claimant

    @uninterrupted
    async def decline_link(self, account: AccountKey) -> AccountKey | LinkRefusal:
        """Refuse the account that claimed the code of this one; return it, or why there was nothing to refuse."""
        async with self._lock:
            await self._refresh()
            link = self.pending_claim(account)
            if link is None or link.claimant is None:
                return "none"
            await self._write(LinkDeclined(link.code.id).to_entry(key=f"link_declined:{link.code.id}"))
            return link.claimant

    @uninterrupted
    async def unlink(self, account: AccountKey) -> tuple[AccountKey, ...] | LinkRefusal:
        """Take an account out of those of its person; return the others, or why nothing changed."""
        async with self._lock:
            await self._refresh()
            others = tuple(other for other in self._state.linked_accounts(account) if other != account)
            if not others:
                return "alone"
            await self._write(AccountUnlinked(*account))
            log.info("account unlinked", extra={"action": "access.unlinked", "channel": account[0], "id": account[1]})
            return others

    # The tape

    async def _refresh(self) -> datetime:
        """Make sure that the tape has been read, forget old codes, and return the time."""
        now = self._now()
        if not self._is_current:
            await self._projected.catch_up()
            self._is_current = True
        self._drop_old(now)
        return now

    async def _write(self, *facts: Fact | TapeEntry) -> None:
        try:
            await self._projected.append(*facts)
        except BaseException:
            self._is_current = False  # the append may have succeeded anyway: the next change reads the tape again
            raise
        self._drop_old(self._now())

    async def _welcome(self, channel: str, sender_id: str) -> None:
        """Let the person know who has a role now."""
        if self._on_granted is not None:
            await self._on_granted(channel, sender_id)

    def _change(self, channel: str, sender_id: str, role: Role | None, *, changed: bool = True) -> AccessChange:
        """Return a permission as it is now."""
        grant = self._state.grants.find((channel, sender_id))
        roles = {parse_role(each.fact.role) for each in self._state.grants if each.fact.channel == channel}
        listed = self._configured.get(channel, NO_LISTED_PEOPLE).listed_roles().values()
        return AccessChange(
            channel,
            sender_id,
            parse_role(role) if role else None,
            self.role(channel, sender_id).value,
            changed,
            grant.fact.name if grant else "",
            "owner" in roles or Role.OWNER in listed,
        )

    def _check_channel(self, channel: str) -> None:
        if channel not in self._configured:
            names = ", ".join(sorted(self._configured)) or "none"
            raise ValueInvalid("channel_unknown", channel=repr(channel), channels=names)

    def _check_giver(self, caller: Caller, role: Role) -> None:
        """Raise if the giver has less than the role now, or is only a member."""
        channel, _, sender_id = caller.id.rpartition(":")
        own = Role.OWNER if caller.id == TERMINAL else self.role(channel, sender_id)
        if not (own.at_least(Role.ADMIN) and own.at_least(role)):
            raise CommandRefused("giver_too_low", by=caller.id, own=own, role=role)


def parse_auditor(text: str) -> AccountKey:
    """Return the account that a text such as `telegram:42` names, or a name without a channel. Raise `ValueInvalid`."""
    channel, _, number = text.strip().rpartition(":")
    if channel:
        return channel, numeric_id(number)
    if not re.fullmatch(AUDITOR_NAME, number):
        raise ValueInvalid("auditor_invalid", auditor=repr(text))
    return "", number


def _configured_people(people: Mapping[str, ListedPeople]) -> Iterable[AccessRow]:
    for channel, listed in sorted(people.items()):
        for sender_id, role in listed.listed_roles().items():
            yield AccessRow(channel, sender_id, parse_role(role))


def _audit_row(audit: Cited[Audit]) -> AuditRow:
    return AuditRow(audit.fact.auditor, audit.fact.session, audit.fact.by, audit.date)


def _configured_groups(people: Mapping[str, ListedPeople]) -> Iterable[GroupRow]:
    for channel, listed in sorted(people.items()):
        for group in sorted(listed.groups, key=int):
            yield GroupRow(channel, group, "everybody")


def _log_role(before: Role, role: Role, account: Mapping[str, str]) -> None:
    """Log a changed grant: numeric ids only, as people choose their names themselves."""
    log.info("role changed: %s, before %s", role, before, extra={"action": "access.role", **account})


def _digest(salt: bytes, text: str) -> bytes:
    return sha256(salt + text.encode()).digest()


def _is_code(code: Cited[PairingCode] | Cited[LinkCode], text: str) -> bool:
    """Return true if this is the text of a code; it takes as long if it is not."""
    fact = code.fact
    return compare_digest(_digest(bytes.fromhex(fact.salt), text), bytes.fromhex(fact.digest))


def _is_recent(time: str, now: datetime) -> bool:
    """Return true for a time within the last hour."""
    return -CLOCK_SKEW <= now - datetime.fromisoformat(time) < CODE_LIFETIME


def _normalize_code(code: str) -> str:
    """Return the code in the form it was given out, from what a person typed. Raise `ValueInvalid`."""
    chars = "".join(char for char in code if not char.isspace() and char not in "-\N{EN DASH}")
    text = chars.upper() if chars.isascii() else ""  # ß would become SS
    if len(text) != CODE_LENGTH or any(char not in CODE_ALPHABET for char in text):
        raise ValueInvalid("code_malformed", number=CODE_LENGTH)
    return text


def _has_codes_left(issued: Iterable[datetime], now: datetime) -> bool:
    """Return true if a channel that gave out codes at these times may give another one."""
    today = sorted(at for at in issued if now - at < CODE_RETENTION)
    allowance, before = float(MAX_CODES_IN_A_ROW), now - CODE_RETENTION
    for at in today:
        allowance = min(MAX_CODES_IN_A_ROW, allowance + (at - before) / CODE_INTERVAL) - 1
        before = at
    return allowance + (now - before) / CODE_INTERVAL >= 1 and len(today) < MAX_CODES_PER_DAY


def _refusal_reason(pairing: PairingState | None, now: datetime) -> Literal["", "unknown", "used", "expired"]:
    if pairing is None:
        return "unknown"
    if pairing.status == "used":
        return "used"
    return "" if pairing.is_open(now) else "expired"
