"""A causal language model as an actor that is trained: it writes moves for states in words, a critic says what they
are worth, and it learns from better and worse proposals (rounds of propose, score, tune).
"""
