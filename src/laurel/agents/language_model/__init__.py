"""Training a causal language model as an actor: it writes moves for states described in words, a critic scores them,
and it is tuned on better and worse proposals (rounds of propose, score, tune).
"""
