"""Workflows and servers on a virtual clock: simulation, models fitted to measured trials, capacity, GPU memory."""
