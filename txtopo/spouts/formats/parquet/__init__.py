"""The format Parquet: its footer, its columns, and the rows that are no rows of the declared fields."""
