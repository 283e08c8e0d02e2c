"""The loop of a leader, on ports only: it takes the lead, plans, runs what the machine asks for, and says how it
goes.
"""
