"""The names of the figures that an algorithm may report of an update; a learning curve has a column for each."""

METRICS = ("policy", "value", "entropy", "approx_kl", "clip_fraction", "explained_variance", "q_value", "epsilon")
