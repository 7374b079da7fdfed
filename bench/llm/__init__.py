"""What a real model makes of memory: `python -m bench.llm`."""
