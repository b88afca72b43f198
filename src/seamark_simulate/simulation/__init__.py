"""Simulation of workflows on a GPU cluster, on a virtual clock. Pure: it opens no file and reads no clock."""
