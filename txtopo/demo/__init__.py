"""The demonstration: a real job on separate services, whose driver is killed twice; at the end every total is
checked.
"""
