"""Operators' orders: an order is previewed, placed as a row, and followed until it is carried out, by this process if
no leader is alive. Committed batches are replayed and verified.
"""
