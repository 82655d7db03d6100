"""What callers and operators may ask: a desk, with a module for each noun. `desk.py` puts the nouns together."""
