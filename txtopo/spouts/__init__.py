"""Where batches come from: each source has a coordinator half on the driver and an emitter half in the tasks. No Spark in here."""
