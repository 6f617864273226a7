"""Methods of making rewards, one per module, each bound to METHOD; other packages add theirs by entry points."""
