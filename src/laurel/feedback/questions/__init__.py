"""Kinds of questions, a file each; see `laurel.feedback.question`."""
