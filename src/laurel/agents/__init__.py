"""Policies and their training."""
