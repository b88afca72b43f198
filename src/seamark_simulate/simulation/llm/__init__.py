"""Simulated replicas that serve a large language model, iteration by iteration, and fleets of them."""
