"""Searching parameters: candidates are drawn, trained a while, and scored by what they return."""
