"""The demonstration: a real job on services of its own, its driver killed twice on the way, every total checked at the
end.
"""
