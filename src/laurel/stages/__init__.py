"""The stages of the pipeline, and those beside it: mergers, a search, a comparison of judges. No algorithm lives here."""
