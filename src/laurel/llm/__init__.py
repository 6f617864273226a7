"""Language models behind small interfaces."""
