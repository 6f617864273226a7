"""The six stages, one file each: files in, work, files out. No algorithm lives here."""
