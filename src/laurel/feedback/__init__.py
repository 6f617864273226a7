"""From captions to preferences: sampling pairs, and annotators."""
