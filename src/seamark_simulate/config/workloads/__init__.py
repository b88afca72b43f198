"""Workloads of simulations in the formats of other tools, and in our own. A new format is a file and a row in
`table.py`."""
