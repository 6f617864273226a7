"""The data between the stages: directories of columnar files with a manifest."""
