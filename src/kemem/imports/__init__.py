"""Files of other systems, read as messages, memories and knowledge, and stored."""
