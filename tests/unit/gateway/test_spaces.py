"""What holds on one server alone: who may speak there, what is for the bot, and where it hears nothing."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from bubbot.errors import ConfigError
from bubbot.gateway.admission import (
    AdmissionPolicy,
    AdmissionSettings,
    Ignore,
    OfferPairing,
    RecordOnly,
    Respond,
    SpaceRules,
)
from bubbot.ports.channel import Inbound, Role, Sender
from bubbot.settings.channels import split_channel_settings

SERVER, OTHER = "77", "78"
STRANGER = Sender("42")
SAID = Inbound(
    "discord", "m1", "500", STRANGER, "hello", "2026-11-21T20:21:00+00:00", direct=False, addressed=True, space=SERVER
)


def decide(space: SpaceRules, inbound: Inbound = SAID, **settings: object) -> Any:
    given = AdmissionSettings(spaces={SERVER: space}, **settings)  # type: ignore[arg-type]
    return AdmissionPolicy(given, lambda _channel, _who: Role.STRANGER, lambda: 0.0).decide(inbound)


class TestWhoMaySpeak:
    def test_everybody_where_it_is_open(self) -> None:
        assert decide(SpaceRules(open=True)) == Respond(Role.MEMBER)

    def test_not_on_another_server(self) -> None:
        assert decide(SpaceRules(open=True), structs.replace(SAID, space=OTHER)) == Ignore("stranger", is_call=True)

    def test_not_in_a_direct_chat(self) -> None:
        direct = structs.replace(SAID, direct=True, space="")
        assert decide(SpaceRules(open=True), direct) == OfferPairing()
        assert decide(SpaceRules(open=True), structs.replace(direct, space=SERVER)) == OfferPairing()

    def test_people_listed_by_id_have_their_role(self) -> None:
        assert decide(SpaceRules(members=frozenset({"42"}))) == Respond(Role.MEMBER)
        assert decide(SpaceRules(admins=frozenset({"42"}))) == Respond(Role.ADMIN)
        assert decide(SpaceRules(members=frozenset({"43"}))) == Ignore("stranger", is_call=True)

    def test_by_a_role_that_the_server_gave(self) -> None:
        space = SpaceRules(roles=frozenset({"7", "8"}), admin_roles=frozenset({"9"}))
        for roles, wanted in (((), None), (("6",), None), (("6", "8"), Role.MEMBER), (("8", "9"), Role.ADMIN)):
            found = decide(space, structs.replace(SAID, sender=structs.replace(STRANGER, roles=roles)))
            assert found == (Respond(wanted) if wanted else Ignore("stranger", is_call=True))

    def test_the_highest_role_counts(self) -> None:
        assert decide(SpaceRules(open=True), owners=frozenset({"42"})) == Respond(Role.OWNER)

    def test_a_bot_is_no_person_of_an_open_server(self) -> None:
        assert decide(SpaceRules(open=True), structs.replace(SAID, sender=Sender("42", bot=True))) == Ignore("bot")

    def test_roles_name_nobody_who_has_no_numeric_id(self) -> None:
        shown = Sender("ann", roles=("7",))
        assert decide(SpaceRules(roles=frozenset({"7"})), structs.replace(SAID, sender=shown)) == Ignore(
            "no numeric id"
        )


class TestWhatIsForTheBot:
    quiet = structs.replace(SAID, addressed=False)

    def test_what_does_not_name_it_is_not(self) -> None:
        assert decide(SpaceRules(open=True), self.quiet) == Ignore("not addressed")

    def test_everything_in_a_chat_set_so(self) -> None:
        assert decide(SpaceRules(open=True, respond_to_all=frozenset({"500"})), self.quiet) == Respond(Role.MEMBER)

    def test_what_is_only_heard(self) -> None:
        assert decide(SpaceRules(open=True, record_only=frozenset({"500"})), self.quiet) == RecordOnly(Role.MEMBER)

    def test_nothing_in_a_chat_that_is_ignored_not_even_from_its_owner(self) -> None:
        ignored = SpaceRules(open=True, respond_to_all=frozenset({"500"}), ignored=frozenset({"500"}))
        assert decide(ignored, owners=frozenset({"42"})) == Ignore("ignored")
        assert decide(ignored, structs.replace(SAID, chat="501")) == Respond(Role.MEMBER)

    def test_its_name_there_takes_the_place_of_the_other(self) -> None:
        space = SpaceRules(open=True, trigger_names=("robo",))
        for text, heard in (("robo, hi", True), ("bubbot, hi", False)):
            found = decide(space, structs.replace(self.quiet, text=text), trigger_names=("bubbot",))
            assert found == (Respond(Role.MEMBER) if heard else Ignore("not addressed"))


class TestSettings:
    def guilds(self, value: object) -> dict[str, object]:
        found = split_channel_settings("discord", {"guilds": value})[0].guilds
        return {key: guild.model_dump(exclude_defaults=True) for key, guild in found.items()}

    @pytest.mark.parametrize("value", [[1, 2], "1,2", "[1, 2]", ["1", "2"]])
    def test_a_list_names_servers_that_are_open(self, value: object) -> None:
        assert self.guilds(value) == {"1": {"open": True}, "2": {"open": True}}

    @pytest.mark.parametrize(
        "value", [{"5": {"respond_to_all": [1], "roles": "7,8"}}, '{"5": {"respond_to_all": [1], "roles": "7,8"}}']
    )
    def test_a_table_for_each_server(self, value: object) -> None:
        assert self.guilds(value) == {"5": {"respond_to_all": ["1"], "roles": ["7", "8"]}}

    @pytest.mark.parametrize(
        ("value", "words"),
        [
            ({"my server": {}}, ("[channels.discord] guilds", "my server", "numeric ids")),
            ({"5": {"respond_to_al": [1]}}, ("[channels.discord.guilds.5] respond_to_al", "'respond_to_all'")),
            (
                {"5": {"respond_to_all": ["general"]}},
                ("[channels.discord.guilds.5] respond_to_all", "general", "numeric ids"),
            ),
            ({"5": {"open": "maybe"}}, ("[channels.discord.guilds.5] open", "maybe", "true or false")),
            ({"5": 3}, ("[channels.discord] guilds", "3", "a table for each id")),
            (True, ("[channels.discord] guilds", "true", "a list of ids")),
            ("{", ("[channels.discord] guilds", "ids with tables")),
        ],
    )
    def test_what_is_wrong_is_named_with_its_value_and_the_fix(self, value: object, words: tuple[str, ...]) -> None:
        with pytest.raises(ConfigError) as error:
            self.guilds(value)
        assert [word for word in words if word not in str(error.value)] == []
