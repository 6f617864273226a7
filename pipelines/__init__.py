"""The stages as one KFP pipeline: its definition, and the run on this machine; importable as `laurel.pipelines`."""
