"""Why a connection did not come about, and what to do: libpq's and the server's words turned into two sentences."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict

from sumaclock_dagster.clock.faults import FaultKind
from sumaclock_dagster.doctor.findings import Finding
from sumaclock_dagster.doctor.phrases import address, one_line, quoted, target, without_password


@dataclass(frozen=True, slots=True)
class Target:
    """Where a connection was to go. `variable`: the setting that holds the URL."""

    variable: str
    address: str
    role: str
    database: str

    @classmethod
    def of(cls, url: str, variable: str) -> Target:
        at = target(url)
        return cls(variable, address(url), at["user"], at["dbname"])


Sentence = Callable[[Target], str]


@dataclass(frozen=True, slots=True)
class Refusal:
    """A kind of refusal: the words that tell it, and the two sentences for it."""

    words: re.Pattern[str]
    problem: Sentence
    remedy: Sentence
    kind: FaultKind | None


def _when(words: str, problem: Sentence, remedy: Sentence, kind: FaultKind | None = None) -> Refusal:
    return Refusal(re.compile(words, re.IGNORECASE), problem, remedy, kind)


# The first that matches counts: a message about TLS may also name the host, one about a login also the database.
REFUSALS = (
    _when(
        r"failed to resolve host|could not translate host name",
        lambda at: f"The host of {at.address} is not known.",
        lambda at: f"Correct the host name in {at.variable}, or the name service of this machine.",
    ),
    _when(
        r"connection refused|no such file or directory\s+is the server running",
        lambda at: f"Nothing accepts connections at {at.address}.",
        lambda at: f"Start PostgreSQL there, or correct host and port in {at.variable}.",
    ),
    _when(
        r"timeout|timed out",
        lambda at: f"Nothing answered at {at.address} in time.",
        lambda at: f"Let this machine through the firewall, or correct host and port in {at.variable}.",
    ),
    _when(
        r"no route to host|network is unreachable",
        lambda at: f"There is no way from this machine to {at.address}.",
        lambda at: f"Mend the network or the VPN, or correct the host in {at.variable}.",
    ),
    _when(
        r"does not support ssl",
        lambda at: f"The server at {at.address} has no TLS, but {at.variable} insists on it.",
        lambda at: f"Set `ssl = on` with a certificate on the server, or remove sslmode from {at.variable}.",
    ),
    _when(
        r"(no pg_hba\.conf entry|pg_hba\.conf rejects).*no encryption",
        lambda at: f"The server at {at.address} refuses role '{at.role}' without TLS.",
        lambda at: f"Add `sslmode=require` to {at.variable}, or allow this address in the server's pg_hba.conf.",
    ),
    _when(
        r"no pg_hba\.conf entry|pg_hba\.conf rejects",
        lambda at: f"The pg_hba.conf of {at.address} does not let role '{at.role}' into database '{at.database}'.",
        lambda _: "Add a line for this role, database and address to pg_hba.conf and reload the server.",
    ),
    _when(
        r"root certificate|certificate verify failed|server certificate for|ssl error|tls",
        lambda at: f"TLS with {at.address} could not be agreed on.",
        lambda at: (
            f"Let sslrootcert in {at.variable} name the authority of the server's certificate, made for its host."
        ),
    ),
    _when(
        r"password supplied|empty password",
        lambda at: f"The server at {at.address} wants a password for role '{at.role}', and there is none.",
        lambda at: f"Put the role's password into {at.variable}, or into a .pgpass file.",
    ),
    _when(
        r"authentication failed",
        lambda at: f"The server at {at.address} does not accept the password or identity of role '{at.role}'.",
        lambda at: f"Correct role and password in {at.variable} (with %-escapes for signs such as @ : / and #).",
    ),
    _when(
        r"not permitted to log in",
        lambda at: f"Role '{at.role}' may not log in at {at.address}.",
        lambda at: f"As a superuser run `alter role {quoted(at.role)} login;`.",
        FaultKind.PRIVILEGE_MISSING,
    ),
    _when(
        r"role .* does not exist|no such user",
        lambda at: f"There is no role '{at.role}' at {at.address}.",
        lambda at: f"If it was renamed, correct the role in {at.variable}; if not, run sql/first_boot.sql there.",
        FaultKind.RENAMED,
    ),
    _when(
        r"database .* does not exist|no such database",
        lambda at: f"There is no database '{at.database}' at {at.address}.",
        lambda at: f"If it was renamed, correct the database in {at.variable}; if not, run sql/first_boot.sql there.",
        FaultKind.RENAMED,
    ),
    _when(
        r"permission denied for database",
        lambda at: f"Role '{at.role}' may not connect to database '{at.database}'.",
        lambda at: f"As a superuser run `grant connect on database {quoted(at.database)} to {quoted(at.role)};`.",
        FaultKind.PRIVILEGE_MISSING,
    ),
    _when(
        r"unsupported startup parameter",
        lambda at: f"A pooler at {at.address} refuses the session options that sumaclock sends.",
        lambda at: f"Point {at.variable} straight at PostgreSQL instead of the pooler.",
    ),
    _when(
        r"too many clients|connection slots|too many connections|no more connections",
        lambda at: f"The server at {at.address} has no connection left for role '{at.role}'.",
        lambda _: "Raise max_connections (or the role's connection limit), or close connections nobody needs.",
    ),
    _when(
        r"starting up|shutting down|not yet accepting|recovery mode",
        lambda at: f"The server at {at.address} is starting, stopping or recovering.",
        lambda _: "Wait until it accepts connections, then run `sumaclock doctor` again.",
    ),
)


def refusal(error: Exception, url: str, variable: str) -> Finding:
    """The finding for a connection to `url` that failed with `error`."""
    at = Target.of(url, variable)
    text = without_password(str(error), url)
    for kind in REFUSALS:
        if kind.words.search(text):
            found = f"{kind.kind.value}: {_found(at)}" if kind.kind else _found(at)
            return Finding(found, kind.problem(at), kind.remedy(at))
    # A server may answer in its own language, or with something unheard of: its words are the best that we have.
    words = re.sub(r"^connection (failed|is bad): ", "", one_line(text)).replace(". ", ", ")
    return Finding(
        _found(at),
        f"The server at {at.address} refused the connection: {words}.",
        f"Mend what it says, or correct {variable}.",
    )


def misread(url: str, variable: str) -> Finding | None:
    """What is wrong with the text of a URL, or None. Shows none of it: a slip moves parts of a password elsewhere."""
    if not url.strip():
        return Finding(
            "nothing", f"{variable} is empty.", f"Set {variable} to postgresql://role:password@host/database."
        )
    try:
        parts = {name: str(value) for name, value in conninfo_to_dict(url).items()}
    except ProgrammingError:
        return Finding(
            "an unreadable URL",
            f"{variable} is not a PostgreSQL URL.",
            "Write it as postgresql://role:password@host:5432/database, with %40 %3A %2F %25 for the signs @ : / %.",
        )
    ports = (parts.get("port") or "5432").split(",")
    slipped = "@" in parts.get("host", "") or "@" in parts.get("dbname", "")
    if slipped or not all(port.isdigit() for port in ports):
        return Finding(
            "a URL whose parts do not fit",
            f"The host, port or database in {variable} cannot be right, as after an unescaped sign in its password.",
            "Write signs such as @ : / # and % in the password as %40 %3A %2F %23 and %25.",
        )
    return None


def _found(at: Target) -> str:
    return f"no connection to database '{at.database}' at {at.address} as role '{at.role}'"
