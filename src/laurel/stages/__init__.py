"""The stages of the pipeline, and mergers, a search and a comparison of judges. No algorithm lives here."""
