"""Simulations of workflows, where they meet files."""
