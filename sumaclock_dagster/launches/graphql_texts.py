"""The GraphQL documents that are sent to Dagster."""

LAUNCH = """
mutation SumaclockLaunch($params: ExecutionParams!) {
  launchRun(executionParams: $params) {
    __typename
    ... on LaunchRunSuccess { run { id } }
    ... on RunConfigValidationInvalid { errors { message } }
    ... on PipelineNotFoundError { message }
    ... on InvalidSubsetError { message }
    ... on RunConflict { message }
    ... on UnauthorizedError { message }
    ... on PythonError { message }
    ... on PresetNotFoundError { message }
    ... on ConflictingExecutionParamsError { message }
  }
}
"""

LOOK = """
query SumaclockLook(
  $pipeline: PipelineSelector!, $assets: [AssetKeyInput!], $partition: String!, $withPartition: Boolean!,
  $ofJob: Boolean!
) {
  assetNodes(pipeline: $pipeline, assetKeys: $assets) @skip(if: $withPartition) {
    partitionDefinition { dimensionTypes { name dynamicPartitionsDefinitionName } }
  }
  pipelineOrError(params: $pipeline) @include(if: $withPartition) {
    __typename
    ... on PipelineNotFoundError { message }
    ... on InvalidSubsetError { message }
    ... on PythonError { message }
    ... on Pipeline {
      partitionKeysOrError @include(if: $ofJob) { partitionKeys }
      partition(partitionName: $partition, selectedAssetKeys: $assets) {
        tagsOrError {
          __typename
          ... on PythonError { message }
          ... on PartitionTags { results { key value } }
        }
        runConfigOrError {
          __typename
          ... on PythonError { message }
          ... on PartitionRunConfig { yaml }
        }
      }
    }
  }
}
"""

ADD_PARTITION = """
mutation SumaclockAddPartition($repository: RepositorySelector!, $name: String!, $key: String!) {
  addDynamicPartition(repositorySelector: $repository, partitionsDefName: $name, partitionKey: $key) {
    __typename
    ... on UnauthorizedError { message }
    ... on PythonError { message }
    ... on DuplicateDynamicPartitionError { partitionName }
  }
}
"""
