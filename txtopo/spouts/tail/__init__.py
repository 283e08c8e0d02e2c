"""Growing files: what TailSpout consists of."""
