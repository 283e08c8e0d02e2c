"""The audit: recounts the source with code of its own and compares everything that was committed. Only reads."""
