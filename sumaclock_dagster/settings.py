"""Every setting with its default, unit and bounds. Read once by an entry point and handed down, never at import."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from sumaclock_dagster.db import with_database
from sumaclock_dagster.model import ClockMode, SumaclockError

CLUSTER_FILE = "cluster.json"


class Settings(BaseSettings):
    """Values of SUMACLOCK_* variables. URLs may hold passwords, so they are secrets and never print."""

    model_config = SettingsConfigDict(env_prefix="SUMACLOCK_", extra="ignore", frozen=True, hide_input_in_errors=True)

    home: Path = Field(Path(".sumaclock"), description="Folder of the private cluster and of logs.")
    database_url: SecretStr | None = Field(None, description="App database, as the app role.")
    owner_database_url: SecretStr | None = Field(None, description="App database, as the owner role: migrations only.")
    cron_database_url: SecretStr | None = Field(None, description="The cluster's pg_cron database, as the app role.")
    dagster_database_url: SecretStr | None = Field(None, description="Dagster's storage: postgresql+psycopg2://...")
    superuser_database_url: SecretStr | None = Field(
        None, description="pg_cron's database as a superuser: `sumaclock doctor` alone, to see all rows of cron.job."
    )
    definitions: str = Field(
        "sumaclock_dagster.definitions", description="Module with the Dagster definitions that `sumaclock up` serves."
    )
    handlers: str = Field("", description="package.module:handlers, several separated by commas.")
    task_kinds: str = Field("", description="package.module:kinds of tasks, several separated by commas.")
    access_check: str = Field("", description="package.module:function that says whether an owner has access.")

    clock: ClockMode = Field("jobs", description="jobs: a clock job each. slots: one for all jobs of a schedule.")

    claim_batch: int = Field(10, ge=1, le=500, description="Runs a first claim takes.")
    claim_batch_max: int = Field(500, ge=1, le=5000, description="Runs a claim takes while handlers are fast.")
    durable_claims: bool = Field(True, description="Off: a handler starts before its claim is on disk.")
    handler_threads: int = Field(10, ge=1, le=200, description="Handlers at once in one worker.")
    poll_seconds: float = Field(30, gt=0, le=300, description="A worker looks this often, notified or not.")
    linger_seconds: float = Field(60, ge=0, le=86_400, description="Idle time after which a surplus worker ends.")
    worker_life_seconds: float = Field(3600, ge=10, le=86_400, description="Age at which a worker is replaced.")
    worker_start_seconds: float = Field(60, ge=5, le=600, description="Time a requested worker has to register.")
    replace_ahead_seconds: float = Field(30, ge=0, le=600, description="Head start of a replacement.")
    grace_seconds: float = Field(20, ge=0, le=600, description="Time that handlers get to finish at a stop.")
    min_workers: int = Field(1, ge=0, le=100, description="Workers kept alive.")
    max_workers: int = Field(4, ge=1, le=100, description="Workers at most.")
    runs_per_worker: int = Field(500, ge=1, description="Due runs that call for one more worker.")
    lease_seconds: float = Field(900, ge=30, description="A run without a sign of life this long is released.")
    dead_session_seconds: float = Field(10, ge=2, le=20, description="Grace for a lost session to come back.")
    heartbeat_seconds: float = Field(5, gt=0, le=5, description="A worker's sign of life.")
    max_lost: int = Field(3, ge=1, le=100, description="Attempts that may end with their worker.")
    observe_seconds: float = Field(5, gt=0, le=600, description="At most one Dagster observation in this time.")
    retention_days: int = Field(30, ge=1, le=3650, description="Finished runs are kept this long.")
    dagster_retention_days: int = Field(30, ge=1, le=3650, description="Dagster runs of ours are kept this long.")
    job_runners: int = Field(4, ge=0, le=32, description="Runners of the app role's one-off commands.")
    task_attempts: int = Field(20, ge=1, le=1000, description="Attempts to settle a task while something is away.")
    task_backoff_seconds: float = Field(5, ge=0, le=3600, description="Delay before the second; it doubles each time.")
    task_backoff_max_seconds: float = Field(600, ge=0, le=86_400, description="The longest such delay.")
    result_max_bytes: int = Field(1_000_000, ge=1000, le=100_000_000, description="A larger result is cut.")
    no_handler_message: str = Field("No handler for kind '{kind}'", description="Error of a run without handler.")

    core_api_url: str | None = Field(None, description="Where core-api is: https://host/base/path.")
    core_api_token: SecretStr | None = Field(None, description="Sent to core-api as a bearer token.")
    core_api_timeout_seconds: float = Field(10, gt=0, le=300, description="An attempt as a whole.")
    core_api_concurrency: int = Field(8, ge=1, le=100, description="Requests to core-api at once, over all workers.")
    core_api_backoff_max_seconds: float = Field(600, ge=1, le=86_400, description="Longest pause of one request.")
    core_api_give_up_seconds: float = Field(604_800, ge=60, description="Age from which a request may be given up.")

    dagster_graphql_url: str | None = Field(None, description="Dagster's GraphQL API, for other code locations.")
    dagster_start_seconds: float = Field(600, ge=10, le=86_400, description="Time a launched Dagster run has to begin.")
    dagster_lost_seconds: float = Field(
        120, ge=5, le=86_400, description="A silent Dagster run whose process is gone is failed after this."
    )
    dagster_silent_seconds: float = Field(
        86_400, ge=60, description="A silent Dagster run that nobody can tell of is failed after this."
    )

    alert_webhook: SecretStr | None = Field(None, description="Slack-compatible webhook that failures are posted to.")

    @field_validator("alert_webhook")
    @classmethod
    def _is_web_address(cls, value: SecretStr | None) -> SecretStr | None:
        text = value.get_secret_value().strip() if value else ""
        if text and not re.fullmatch(r"https?://[!-~]+", text):
            # Says nothing of the value: whoever knows it can post.
            raise ValueError("must be http(s)://host[:port]/path, in visible ASCII")
        return SecretStr(text) if text else None

    @field_validator("core_api_url", "dagster_graphql_url")
    @classmethod
    def _is_plain_url(cls, value: str | None) -> str | None:
        parts = urlsplit(value or "http://unset")
        if (
            parts.scheme not in ("http", "https")
            or not parts.hostname
            or parts.query
            or parts.fragment
            or "@" in parts.netloc
        ):
            # What stands before an @ is a secret, and belongs into the token's variable.
            raise ValueError("must be http(s)://host[:port][/path], without user, query or fragment")
        return value or None

    @field_validator("core_api_token")
    @classmethod
    def _fits_a_header(cls, value: SecretStr | None) -> SecretStr | None:
        # A file's content ends with a line break, and a header must not hold one.
        text = value.get_secret_value().strip() if value else ""
        if not re.fullmatch(r"[!-~]*", text):
            raise ValueError("must be visible ASCII without spaces")
        return SecretStr(text) if text else None

    @property
    def loaded_code(self) -> str:
        """Every "package.module:attribute" that the settings name, separated by commas."""
        return ",".join(filter(None, (self.handlers, self.task_kinds, self.access_check)))

    @property
    def app_url(self) -> str:
        """Where the app database is. Raises SumaclockError when neither the environment nor a private cluster says."""
        return self._url("database_url")

    @property
    def owner_url(self) -> str:
        if self.owner_database_url is None and self.database_url is not None:
            return self.app_url
        return self._url("owner_database_url")

    @property
    def cron_url(self) -> str:
        if self.cron_database_url is None and self.database_url is not None:
            return with_database(self.app_url, "postgres")
        return self._url("cron_database_url")

    @property
    def superuser_url(self) -> str | None:
        """pg_cron's database as a superuser: what the environment says, or the private cluster's where that is used."""
        if self.superuser_database_url is not None:
            return self.superuser_database_url.get_secret_value()
        if self.database_url is not None:
            return None
        try:
            return str(json.loads((self.home / CLUSTER_FILE).read_text())["superuser_url"])
        except (OSError, ValueError, KeyError):
            return None

    @property
    def dagster_url(self) -> str:
        return self._url("dagster_database_url")

    def _url(self, name: str) -> str:
        secret = getattr(self, name)
        if isinstance(secret, SecretStr):
            return secret.get_secret_value()
        file = self.home / CLUSTER_FILE
        try:
            return str(json.loads(file.read_text())[name])
        except (OSError, ValueError, KeyError):
            raise SumaclockError(
                f"No database is known: set SUMACLOCK_{name.upper()}, or start the private cluster with `bin/up` "
                f"(looked for {os.path.relpath(file)})."
            ) from None
