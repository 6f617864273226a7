"""The methods of making rewards, one a module, each bound to METHOD; other packages add theirs by entry points."""
