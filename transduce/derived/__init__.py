"""What is made from trained models: their average, shortlists of output tokens, n-gram models of words, and training data."""
