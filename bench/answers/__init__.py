"""What a model answers from memory: `python -m bench.answers`."""
