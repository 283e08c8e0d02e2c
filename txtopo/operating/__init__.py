"""What operators ask for: an order is shown first, placed as a row, and followed until a leader has answered it;
committed batches are replayed and verified.
"""
