"""What operators ask for: an order is shown first, placed as a row, and followed until it is carried out, if need be by
this process; committed batches are replayed and verified.
"""
