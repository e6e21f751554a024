"""Turning errors, addresses and lists into parts of a sentence."""

from __future__ import annotations

import re
from collections.abc import Sequence

from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import Conninfo

# Not the end of an ellipsis.
SENTENCE_END = re.compile(r"(?<!\.)\. ")


def one_line(error: BaseException | str) -> str:
    """The first line that says something, without a full stop at its end."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0].rstrip(".") if lines else type(error).__name__


def two_sentences(refused: BaseException, remedy: str) -> tuple[str, str]:
    """What is wrong and what to do, of an error that says both; `remedy` where it says the first only."""
    sentences = SENTENCE_END.split(" ".join(str(refused).split()))
    return f"{sentences[0].rstrip('.')}.", ", then: ".join(sentences[1:]) or remedy


def without_password(text: str, url: str) -> str:
    """`text` with the password of `url` taken out wherever it occurs."""
    password = str(conninfo_to_dict(url).get("password") or "")
    return text.replace(password, "***") if password else text


def listed(things: Sequence[str]) -> str:
    """'a', 'a and b' or 'a, b and c'."""
    if len(things) < 2:
        return "".join(things)
    return f"{', '.join(things[:-1])} and {things[-1]}"


def target(url: str) -> dict[str, str]:
    """Host, port, user and database that libpq makes of `url`, the environment and its defaults; '' for none."""
    parts = {option.keyword.decode(): (option.val or b"").decode() for option in Conninfo.get_defaults()}
    parts.update({name: str(value) for name, value in conninfo_to_dict(url).items()})
    host, port, user = parts["host"] or parts["hostaddr"], parts["port"] or "5432", parts["user"]
    return {"host": host, "port": port, "user": user, "dbname": parts["dbname"] or user}


def address(url: str) -> str:
    """'host:port' or 'socket directory (port n)'."""
    at = target(url)
    if not at["host"]:
        return f"the local socket (port {at['port']})"
    return f"{at['host']} (port {at['port']})" if at["host"].startswith("/") else f"{at['host']}:{at['port']}"


def quoted(identifier: str) -> str:
    """An identifier as SQL writes it, for statements that a person is to run."""
    return '"' + identifier.replace('"', '""') + '"'
