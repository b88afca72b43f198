"""Data sets: found, read, checked, and kept once in the form that drivers read, in a folder named by content."""
