"""`bubbot store`: what an administrator of a PostgreSQL server makes there, for tenants and for auditors."""

from __future__ import annotations

from typing import Annotated

from msgspec import Struct

from bubbot.app.auditors import add_server_auditor, add_server_tenant
from bubbot.app.tapes import now
from bubbot.arguments.fields import Args
from bubbot.cli.invocation import Invocation
from bubbot.cli.local_command import local_command
from bubbot.cli.output import show, show_record
from bubbot.cli.setup import CommandSetup, load_setup
from bubbot.shell_command import Argument, CommandGroup
from bubbot.tape.entry import timestamp

EXIT_OK = 0


class ServerRole(Struct, frozen=True):
    """A role on the server, and what the settings of the bot need.

    Attributes:
        role: the role; psql gives it a password, if the server asks for one.
        key: the key of `[store]`: `url` or `audit_url`.
        url: its value, without a password.
    """

    role: str
    key: str
    url: str


class TenantArgs(Args, frozen=True):
    """The arguments of `bubbot store add-tenant`."""

    name: Annotated[str, Argument("the name of the tenant: lowercase letters and digits")]


class AuditorArgs(Args, frozen=True):
    """The arguments of `bubbot store add-auditor`."""

    tenant: Annotated[
        str, Argument("the tenant whose auditors they are (default: a database without tenants)", "NAME")
    ] = ""


@local_command("store add-tenant", example="store add-tenant acme", result=ServerRole)
def add_tenant(invocation: Invocation, args: TenantArgs) -> int:
    """Make a tenant on the PostgreSQL server, or bring it up to date.

    Make the schema and the role `bubbot_NAME` in the database of [store] url, which has to be an address of its owner. A bot
    that connects as that role keeps its tapes there, and sees and changes nothing else. Run it again after an upgrade. It needs
    no running bot.
    """
    setup = load_setup(invocation)
    url = add_server_tenant(setup.settings, args.name, timestamp(now()))
    _show_role(setup, "url", url, f"The tenant {args.name} has its own schema and role.")
    return EXIT_OK


@local_command("store add-auditor", example="store add-auditor\nstore add-auditor --tenant acme", result=ServerRole)
def add_auditor(invocation: Invocation, args: AuditorArgs) -> int:
    """Make the role and the views of auditors on the PostgreSQL server.

    Make the schema and the role `bubbot_audit` in the database of [store] url, which has to be an address of its owner. The role
    reads the tapes that an auditor was granted, and can write nothing; the trace page uses it for auditors once [store] audit_url
    names it. Run it again after an upgrade.
    """
    setup = load_setup(invocation)
    url = add_server_auditor(setup.settings, args.tenant)
    _show_role(setup, "audit_url", url, "Auditors have their own role and views.")
    return EXIT_OK


def _show_role(setup: CommandSetup, key: str, url: str, sentence: str) -> None:
    role = url.partition("//")[2].partition("@")[0]
    if setup.as_json:
        show_record(ServerRole(role, key, url))
        return
    show(
        f"{sentence} Give the role a password with psql (\\password {role}) if the server asks for one, and set for the bot:"
    )
    show(f'\n[store]\n{key} = "{url}"', wraps=False)


STORE_COMMANDS = CommandGroup(
    "store",
    (add_tenant, add_auditor),
    "Make tenants and the role of auditors on a PostgreSQL server. Each command connects as the owner of the database.",
    "make tenants and auditors on a PostgreSQL server",
)
