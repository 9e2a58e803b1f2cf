"""The search over pipelines: microbatches, stages, meshes, schedules."""
