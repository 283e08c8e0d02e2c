"""The demo of Kafka: a driver is killed, an odd message stops the topology, `txtopo retry` replays it."""
