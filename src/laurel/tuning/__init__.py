"""Hyperparameter search: candidates are drawn, trained briefly, and scored by their returns."""
