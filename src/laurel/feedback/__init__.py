"""From captions to preferences: which pairs, and who judges them."""
