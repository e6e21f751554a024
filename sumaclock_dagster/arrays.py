"""Arrays as parameters. The driver's own dumpers look at each element in Python, which costs a batch of outcomes more
than all else."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from itertools import chain, repeat

from psycopg.abc import AdaptContext
from psycopg.adapt import Dumper
from psycopg.pq import Format

# Of PostgreSQL's types (pg_type.dat), each with its form for the module struct and its size in bytes.
INT2, INT8, FLOAT8 = (21, "h", 2), (20, "q", 8), (701, "d", 8)


class Packed(bytes):
    """A one-dimensional array in PostgreSQL's binary form, for a parameter that the statement casts to its type. Needs
    a connection of `sumaclock_dagster.db`."""


class PackedDumper(Dumper):
    """Sends it as it is."""

    format = Format.BINARY

    def dump(self, obj: Packed) -> bytes:
        return obj


def register(context: AdaptContext) -> None:
    context.adapters.register_dumper(Packed, PackedDumper)


def int2_array(values: Sequence[int]) -> Packed:
    """Raises struct.error for a number that is no smallint."""
    return _packed(INT2, values)


def int8_array(values: Sequence[int]) -> Packed:
    """Raises struct.error for a number that is no bigint."""
    return _packed(INT8, values)


def float8_array(values: Sequence[float]) -> Packed:
    return _packed(FLOAT8, values)


def text_array(values: Iterable[str | None]) -> str:
    """Texts and nulls as the text of a PostgreSQL array."""
    return f"{{{','.join(map(_element, values))}}}"


def _packed(element: tuple[int, str, int], values: Sequence[float]) -> Packed:
    """Dimensions, whether there are nulls, the type, the length and the first index; then each with its size before
    it (array_recv in PostgreSQL's arrayfuncs.c)."""
    oid, form, size = element
    head = struct.pack("!iiIii", 1, 0, oid, len(values), 1)
    return Packed(head + struct.pack("!" + ("i" + form) * len(values), *chain.from_iterable(zip(repeat(size), values))))


def _element(text: str | None) -> str:
    if text is None:
        return "NULL"
    if "\\" in text or '"' in text:
        text = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'
