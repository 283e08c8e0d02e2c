"""The tuple runtime: tasks of tuple bolts, their groupings, counts and acks, without Spark. Spark's tasks and
`txtopo.testing` both run it.
"""
