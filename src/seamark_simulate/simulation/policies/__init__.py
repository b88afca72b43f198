"""Placement policies: one function each. The table of all is in table.py."""
