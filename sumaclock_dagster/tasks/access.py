"""Whether the owner of a task still has access: asked in the task run's transaction, before its work."""

from __future__ import annotations

from collections.abc import Callable, Collection

from sumaclock_dagster.db import Connection, query
from sumaclock_dagster.handlers import load_attribute
from sumaclock_dagster.model import SumaclockError
from sumaclock_dagster.storable import clean_text

REASON = "The owner has no access any more."
REFUSED = f"{REASON} (sumaclock.owner_has_access)"
# Organization id and user id.
Owner = tuple[str, str]
# (connection, organization id, user id): True where there is access; otherwise False, or the reason as text.
AccessCheck = Callable[[Connection, str, str], "bool | str"]


def load_access_check(spec: str) -> AccessCheck | None:
    """The function that SUMACLOCK_ACCESS_CHECK names ("package.module:function"), or None for "".

    Raises SumaclockError where there is no such function."""
    if not spec.strip():
        return None
    where = f"SUMACLOCK_ACCESS_CHECK '{spec}'"
    found = load_attribute(where, spec.strip())
    if not callable(found):
        raise SumaclockError(f"{where} is {type(found).__name__}, not a function of (connection, organization, user).")
    return found  # type: ignore[no-any-return]


def refused_owners(conn: Connection, owners: Collection[Owner]) -> set[Owner]:
    """Those whom the database's function refuses: it must say True, nothing else will do. Raises what it raises."""
    values = {"organizations": [owner[0] for owner in owners], "users": [owner[1] for owner in owners]}
    rows = conn.execute(query("check_access"), values).fetchall()
    return set(owners) - {(organization, user) for organization, user, has_access in rows if has_access is True}


def refusal(conn: Connection, hook: AccessCheck | None, owner: Owner) -> str | None:
    """Why the owner has no access, or None. Both the database's function and `hook` must say True. Raises what they
    raise."""
    if refused_owners(conn, [owner]):
        return REFUSED
    said = True if hook is None else hook(conn, *owner)
    if said is True:
        return None
    return clean_text(said, 2000) if isinstance(said, str) and said else REASON
