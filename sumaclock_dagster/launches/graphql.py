"""Launching in other code locations: Dagster's GraphQL API, as its UI uses it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sumaclock_dagster.launches.graphql_texts import ADD_PARTITION, LAUNCH, LOOK
from sumaclock_dagster.launches.target import Target
from sumaclock_dagster.model import SumaclockError

# Of one call; what takes longer is found by its tag.
TIMEOUT_SECONDS = 8.0
ASSET_JOB = "__ASSET_JOB"
REPOSITORY = "__repository__"
PARTITION_TAG = "dagster/partition"
TEXT_MAX_CHARS = 5000
# Dagster tells by name what an asset's dynamic partitions definition is, and not a job's.
UNNAMED = (
    "Where its partitions are dynamic, name their definition in the payload, with the key to add: "
    '"dynamic_partitions": {{"...": "{key}"}}.'
)
# Added already, by us before a crash or by somebody else.
KNOWN_PARTITION = "DuplicateDynamicPartitionError"

Answer = Mapping[str, Any]


class Refused(SumaclockError):
    """Dagster answered, and will answer the same again. The text is Dagster's own."""


class UnknownPartition(Refused):
    """Dagster knows no partition of that key, and would launch a job of ops all the same. The text says where keys come
    from."""

    def __init__(self, key: str, text: str) -> None:
        super().__init__(text)
        self.key = key


class Unreachable(SumaclockError):
    """No answer of Dagster's. What was asked may have arrived all the same."""


class DagsterApi:
    """url: the GraphQL endpoint, for example http://127.0.0.1:3000/graphql. Asks nobody else: no proxy, no redirect."""

    def __init__(self, url: str, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        # Slow to import, and needed by those alone who launch elsewhere.
        import httpx

        self._url = url
        self._client = httpx.Client(timeout=timeout_seconds, trust_env=False, follow_redirects=False)
        self._no_answer = (httpx.HTTPError, ValueError)

    def close(self) -> None:
        self._client.close()

    def launch(self, target: Target, tags: Mapping[str, str]) -> str:
        """Launch one Dagster run and return its id. Adds a dynamic partition that is not there yet. Raises Refused with
        Dagster's own message, UnknownPartition, and Unreachable."""
        selector = _selector(target)
        all_tags = dict(tags)
        # An object, or the YAML text that Dagster itself gave.
        run_config: Mapping[str, Any] | str = target.run_config
        if target.partition_key is not None:
            self._add_partition(selector, target)
            of_partition, config = self._look_at_partition(selector, target)
            all_tags = {
                **of_partition,
                **all_tags,
                PARTITION_TAG: of_partition.get(PARTITION_TAG, target.partition_key),
            }
            run_config = run_config or config
        values = {
            "selector": {**selector, "jobName": target.job or ASSET_JOB},
            "runConfigData": run_config or {},
            "executionMetadata": {"tags": [{"key": key, "value": value} for key, value in all_tags.items()]},
        }
        answer = self._ask(LAUNCH, {"params": values})["launchRun"]
        if answer["__typename"] != "LaunchRunSuccess":
            raise Refused(_said(answer))
        return str(answer["run"]["id"])

    def _add_partition(self, selector: Answer, target: Target) -> None:
        answer = self._ask(LOOK, self._look(selector, target, partition=None))
        for name, key in _dynamic_partitions(answer["assetNodes"], target.partition_key or ""):
            values = {
                "repository": {name: selector[name] for name in ("repositoryName", "repositoryLocationName")},
                "name": name,
                "key": key,
            }
            added = self._ask(ADD_PARTITION, values)["addDynamicPartition"]
            if added["__typename"] not in ("AddDynamicPartitionSuccess", KNOWN_PARTITION):
                raise Refused(_said(added))

    def _look_at_partition(self, selector: Answer, target: Target) -> tuple[dict[str, str], str]:
        """The tags and the run config (YAML) that the target's partition has by itself."""
        answer = self._ask(LOOK, self._look(selector, target, target.partition_key))["pipelineOrError"]
        if answer["__typename"] != "Pipeline":
            raise Refused(_said(answer))
        partition = answer.get("partition")
        # A job of ops would be launched with any key.
        known = answer.get("partitionKeysOrError")
        if partition is None or (known is not None and target.partition_key not in known["partitionKeys"]):
            raise UnknownPartition(
                str(target.partition_key),
                f"{target.in_words()} has no such partition. " + UNNAMED.format(key=target.partition_key),
            )
        for part in (partition["tagsOrError"], partition["runConfigOrError"]):
            if part["__typename"] == "PythonError":
                raise Refused(_said(part))
        tags = {tag["key"]: tag["value"] for tag in partition["tagsOrError"]["results"]}
        return tags, str(partition["runConfigOrError"]["yaml"] or "")

    @staticmethod
    def _look(selector: Answer, target: Target, partition: str | None) -> dict[str, Any]:
        return {
            "pipeline": {**selector, "pipelineName": target.job or ASSET_JOB},
            "partition": partition or "",
            "withPartition": partition is not None,
            "assets": selector.get("assetSelection"),
            "ofJob": target.job is not None,
        }

    def _ask(self, text: str, values: Mapping[str, Any]) -> Answer:
        try:
            response = self._client.post(self._url, json={"query": text, "variables": values})
            body = response.json()
        except self._no_answer as error:
            raise Unreachable(
                f"Dagster's GraphQL API at SUMACLOCK_DAGSTER_GRAPHQL_URL gives no answer: {type(error).__name__}."
            ) from error
        data = body.get("data") if isinstance(body, dict) else None
        if not isinstance(data, dict):
            if response.status_code >= 500 or not isinstance(body, dict) or "errors" not in body:
                raise Unreachable(f"Dagster's GraphQL API answers with HTTP {response.status_code} and no data.")
            raise Refused("; ".join(str(error.get("message")) for error in body["errors"])[:TEXT_MAX_CHARS])
        return data


def _selector(target: Target) -> dict[str, Any]:
    place = {"repositoryName": target.repository or REPOSITORY, "repositoryLocationName": target.location}
    if not target.assets:
        return place
    return {**place, "assetSelection": [{"path": key.split("/")} for key in target.assets]}


def _dynamic_partitions(nodes: list[Answer], key: str) -> list[tuple[str, str]]:
    """Names of dynamic partitions definitions, each with the key that `key` stands for in it."""
    found = {}
    for node in nodes:
        dimensions = (node["partitionDefinition"] or {}).get("dimensionTypes") or []
        # The parts of a key of several dimensions stand in the order of the dimensions' names.
        parts = key.split("|") if len(dimensions) > 1 else [key]
        for dimension, part in zip(sorted(dimensions, key=lambda one: str(one["name"])), parts, strict=False):
            if dimension["dynamicPartitionsDefinitionName"]:
                found[dimension["dynamicPartitionsDefinitionName"]] = part
    return list(found.items())


def _said(answer: Answer) -> str:
    """Dagster's own words for a refusal."""
    texts = [answer.get("message") or ""] + [error["message"] for error in answer.get("errors") or []]
    return f"{answer['__typename']}: {' '.join(filter(None, texts))}"[:TEXT_MAX_CHARS]
