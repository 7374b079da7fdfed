"""What it costs to remember and to recall: KeMem's add and search beside mem0's."""
