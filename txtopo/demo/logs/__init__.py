"""The demo of access logs: a bug stops the topology, after its fix, one command replays the failed batch."""
