"""The stages of the pipeline, mergers, suites, transfer, exports, a search and a comparison of judges. Contains no
algorithms.

Most `run` functions take sections of params.yaml by name (see `laurel params`), the outputs of earlier stages, named
as in `laurel.stages.pipeline.PLACES`, and the output directory.
"""
