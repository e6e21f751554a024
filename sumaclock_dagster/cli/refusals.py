"""How a command ends when a rule or the database refuses: exit code 1 and one line on stderr."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click
import psycopg
from psycopg import errors
from pydantic import ValidationError

from sumaclock_dagster.model import SumaclockError


class RefusingGroup(click.Group):
    """A group whose commands end so."""

    def invoke(self, ctx: click.Context) -> Any:
        with refusals():
            return super().invoke(ctx)


@contextmanager
def refusals() -> Iterator[None]:
    """Turns what was refused into click.ClickException."""
    try:
        yield
    except SumaclockError as error:
        raise click.ClickException(str(error)) from None
    except ValidationError as error:
        raise click.ClickException(_invalid_settings(error)) from None
    except (errors.UndefinedTable, errors.InvalidSchemaName):
        raise click.ClickException("The app database has no sumaclock tables; run `sumaclock migrate`.") from None
    except psycopg.Error as error:
        said = error.diag.message_primary or str(error).partition("\n")[0]
        raise click.ClickException(f"PostgreSQL refused: {said}. `sumaclock doctor` says more.") from None


def _invalid_settings(error: ValidationError) -> str:
    faults = (f"SUMACLOCK_{'_'.join(map(str, fault['loc'])).upper()}: {fault['msg']}" for fault in error.errors())
    return "; ".join(faults) + "."
