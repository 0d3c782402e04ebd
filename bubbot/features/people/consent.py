"""Consent: what each person allows beyond answers, and who asks before words of people go anywhere for such a purpose."""

from __future__ import annotations

from typing import get_args

from msgspec import Struct

from bubbot.command import Caller, command
from bubbot.concurrency import uninterrupted
from bubbot.errors import CommandRefused
from bubbot.features.people.arguments import ConsentArgs, ConsentsArgs, parse_account
from bubbot.features.people.facts import Consent
from bubbot.features.people.state import CONSENT_PROJECTION, ConsentState
from bubbot.ports.channel import Button, Role
from bubbot.ports.people import Account, FindAccounts, Purpose
from bubbot.shell_command import IsoTime
from bubbot.tape.fact import Cited
from bubbot.tape.handle import TapeHandle
from bubbot.tape.projection import ProjectionRunner
from bubbot.texts import COMMAND_PREFIX, Texts
from bubbot.tool import INSIDE, READS_PEOPLE, CommandHelp, HelpTopic

CONSENT_TAPE = CONSENT_PROJECTION.tapes
PURPOSES: tuple[Purpose, ...] = get_args(Purpose)
GIVEN, WITHDRAWN = Consent.EVENTS


class ConsentRow(Struct, frozen=True):
    """The newest answer of an account for a purpose.

    Attributes:
        account: such as `telegram:42`.
        purpose: the purpose.
        given: the person allows it, by this account; a newer answer of a linked account counts instead.
        allowed: the person allows it, by the newest answer on any of the person's accounts.
        answered: when the answer was given.
    """

    account: str
    purpose: str
    given: bool
    allowed: bool
    answered: IsoTime

    @property
    def variant(self) -> str:
        """The variant of its sentence."""
        return "given" if self.allowed else "withdrawn"

    def values(self, _caller: Caller) -> dict[str, str]:
        """Return the formatted values of its sentence."""
        return {"day": self.answered[:10]}


class ConsentAnswer(Struct, frozen=True):
    """What a person allows.

    Attributes:
        purpose: the purpose.
        given: it is allowed.
        answered: when the person said so; empty if never.
    """

    purpose: Purpose
    given: bool
    answered: str = ""

    def describe(self, caller: Caller) -> str:
        """Say it in a line."""
        variant = "given" if self.given else "withdrawn" if self.answered else "never"
        say = caller.texts.say
        return say(f"ConsentAnswer.{variant}", purpose=say(f"purpose_{self.purpose}"), day=self.answered[:10])


class ConsentOverview(Struct, frozen=True):
    """What a person allows, by purpose.

    Attributes:
        answers: one for each purpose.
    """

    answers: tuple[ConsentAnswer, ...]

    def describe(self, caller: Caller) -> str:
        """Say what consent is about, and a line for each purpose."""
        lines = [answer.describe(caller) for answer in self.answers]
        return "\n".join([caller.texts.say("ConsentOverview"), *lines, caller.texts.say("consent_how")])


class ConsentChange(Struct, frozen=True):
    """What a person allows now.

    Attributes:
        purpose: the purpose.
        given: it is allowed.
        changed: false if it was so before.
    """

    purpose: Purpose
    given: bool
    changed: bool = True

    def describe(self, caller: Caller) -> str:
        """Say what holds from now on."""
        say = caller.texts.say
        name = "ConsentChange.given" if self.given else "ConsentChange.withdrawn"
        text = say(name, purpose=say(f"purpose_{self.purpose}"))
        return text if self.changed else say("nothing_changed", text=text)


class ConsentService:
    """The answers of people. A person has those of all linked accounts: the newest one counts.

    It implements `AsksConsent`.
    """

    def __init__(self, tape: TapeHandle, projections: ProjectionRunner, find_accounts: FindAccounts) -> None:
        self._projected = projections.project(CONSENT_PROJECTION, tape)
        self._find_accounts = find_accounts
        self._lock = projections.lock(tape.name)

    async def has_consented(self, account: Account, purpose: Purpose) -> bool:
        """Return true if the person with this account allows a purpose now."""
        answer = (await self._read()).find_answer(await self._find_accounts(account), purpose)
        return answer is not None and not answer.is_revoked

    async def list_answers(self, account: Account) -> tuple[ConsentAnswer, ...]:
        """Return what the person with this account allows, purpose by purpose."""
        state, accounts = await self._read(), await self._find_accounts(account)
        return tuple(_answer(purpose, state.find_answer(accounts, purpose)) for purpose in PURPOSES)

    @command(
        "consent",
        chat=("people.consent", "consent"),
        form="[purpose] [answer]",
        in_shell=False,
        is_direct=True,
        effect=INSIDE,
        help=CommandHelp(
            HelpTopic.SETTINGS,
            "What your words may be used for",
            (",consent training yes", ",consent training no", ",consent"),
            words=("privacy", "training"),
        ),
    )
    async def answer(self, caller: Caller, args: ConsentArgs) -> ConsentOverview | ConsentChange:
        """Say what your words may be used for besides answers to you, or change it; you can take it back at any time."""
        turn = caller.required_turn
        account = turn.typing_account
        if account is None:
            raise CommandRefused("consent_person")
        if args.purpose is not None and args.answer is not None:
            return await self._change(account, args.purpose, given=args.answer == "yes")
        answers = await self.list_answers(account)
        shown = [each for each in answers if args.purpose in (None, each.purpose)]
        turn.buttons.append(tuple(_make_button(each, caller.texts) for each in shown))
        return ConsentOverview(tuple(shown))

    @command(
        "access consents [person]",
        example="telegram:42",
        role=Role.OWNER,
        effect=READS_PEOPLE,
        rows="consents",
    )
    async def list_consents(self, args: ConsentsArgs) -> list[ConsentRow]:
        """List what people allow for training, evaluation and sharing with others; whoever is not listed allows nothing."""
        state = await self._read()
        accounts = None if not args.person else await self._find_accounts(parse_account(args.person))
        rows = []
        for answer in sorted(state.answers, key=lambda each: each.fact.subject):
            fact = answer.fact
            if fact.purpose in PURPOSES and (accounts is None or fact.account in accounts):
                is_allowed = await self.has_consented(fact.account, fact.purpose)
                name = ":".join(fact.account)
                rows.append(ConsentRow(name, fact.purpose, not answer.is_revoked, is_allowed, answer.date))
        return rows

    @uninterrupted
    async def _change(self, account: Account, purpose: Purpose, *, given: bool) -> ConsentChange:
        async with self._lock:
            before = (await self._read()).find_answer(await self._find_accounts(account), purpose)
            is_same = before is not None and before.is_revoked is not given
            if not is_same and not (before is None and not given):
                await self._projected.append(Consent(*account, purpose).to_entry(GIVEN if given else WITHDRAWN))
                return ConsentChange(purpose, given)
            return ConsentChange(purpose, given, changed=False)

    async def _read(self) -> ConsentState:
        return await self._projected.catch_up()


def _answer(purpose: Purpose, answer: Cited[Consent] | None) -> ConsentAnswer:
    return ConsentAnswer(purpose, answer is not None and not answer.is_revoked, answer.date if answer else "")


def _make_button(answer: ConsentAnswer, texts: Texts) -> Button:
    """Make the button that changes an answer."""
    word = "no" if answer.given else "yes"
    label = texts.say(f"consent_button_{answer.purpose}_{word}")
    return Button(label, f"{COMMAND_PREFIX}consent {answer.purpose} {word}")
