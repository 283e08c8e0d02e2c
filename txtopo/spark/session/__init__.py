"""The Spark session: its settings, its Python workers, and the code that it sends to them."""
