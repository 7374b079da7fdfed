"""What the faces and the integrations share: tools for models, keyed notes, mem0's calls."""
