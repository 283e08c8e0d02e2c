"""The only room that imports PySpark: a quiet session, plans, emitters in tasks with keyed reports, and the Executor
port on top.
"""
