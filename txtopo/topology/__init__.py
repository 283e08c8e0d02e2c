"""What a user writes: a frozen description of spouts, bolts, committers and the streams between them. No Spark."""
