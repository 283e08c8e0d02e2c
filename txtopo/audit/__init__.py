"""The audit: recounts the source with separate code and compares everything that was committed. Only reads."""
