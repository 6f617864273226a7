"""The stages of the pipeline, and mergers, a search and a comparison of judges. No algorithm lives here.

A stage's `run` takes sections of params.yaml by their names, which `laurel params` explains; the outputs of earlier
stages, named as in `laurel.stages.pipeline.PLACES`; and the directory that it writes.
"""
