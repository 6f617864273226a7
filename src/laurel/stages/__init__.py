"""The stages of the pipeline, and mergers, a search and a comparison of judges. No algorithm lives here.

A stage's `run` takes sections of params.yaml by their names, which `laurel params` explains and its docstring does not
explain again, and then the directories that it reads and writes.
"""
