"""The source Kafka: which offsets a batch has, how they are read, and how messages become rows."""
