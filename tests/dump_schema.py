"""Write sql/schema.sql anew: `python -m tests.dump_schema`. The dump is of a fresh database after all migrations."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from sumaclock_dagster.embedded.binaries import Binaries
from sumaclock_dagster.migrate import sql_file
from tests.conftest import new_cluster, new_home, remove_cluster

HEADER = """-- Schema sumaclock after first_boot.sql and all migrations: to be read and compared, not to be run.
-- Written by `python -m tests.dump_schema`; never edited by hand.
"""
# Lines that say which pg_dump wrote them, or only prepare a restore.
NOISE = re.compile(r"^(--.*|SET .*|SELECT pg_catalog\.set_config.*|\\(un)?restrict .*)$", re.MULTILINE)

# Before version 16, pg_dump calls everything that is like a table a table here.
OWNER = re.compile(r"^ALTER (VIEW|SEQUENCE|MATERIALIZED VIEW) (\S+ OWNER TO)", re.MULTILINE)
VIEW = re.compile(r"^CREATE VIEW .*?;$", re.MULTILINE | re.DOTALL)


def schema_path() -> Path:
    return sql_file("migrations").parent / "schema.sql"


def dump_schema(binaries: Binaries, superuser_url: str) -> str:
    """The schema sumaclock of the database at `superuser_url`, without what differs between two dumps of the same."""
    done = subprocess.run(
        [binaries.program("pg_dump"), "--schema-only", "--schema=sumaclock", "--dbname", superuser_url],
        capture_output=True,
        text=True,
        check=True,
    )
    text = OWNER.sub(r"ALTER TABLE \2", NOISE.sub("", done.stdout))
    return HEADER + "\n" + re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def comparable(text: str) -> str:
    """The dump `text` as all versions write it: since 16, a view of one table shows its columns without the table."""
    return VIEW.sub(lambda view: re.sub(r"\b\w+\.(?=\w)", "", view[0]), text)


def main() -> None:
    private = new_cluster(new_home())
    try:
        file = private.start()
        text = dump_schema(
            Binaries(Path(file.bin_dir), 0), file.superuser_url.replace("@/postgres?", "@/sumaclock?", 1)
        )
        schema_path().write_text(text)
    finally:
        remove_cluster(private)


if __name__ == "__main__":
    main()
