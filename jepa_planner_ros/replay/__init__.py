"""Recordings: what a bag tells, the plans made from it anew, and how the two compare."""
