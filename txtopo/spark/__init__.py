"""The only room that imports PySpark: a quiet session, plans, emitters in tasks whose reports have keys, and the
Executor port on top.
"""
