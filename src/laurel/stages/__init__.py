"""The stages of the pipeline, mergers, a search and a comparison of judges. Contains no algorithms.

A stage's `run` takes sections of params.yaml by name (see `laurel params`), the outputs of earlier stages, named as in
`laurel.stages.pipeline.PLACES`, and the output directory.
"""
