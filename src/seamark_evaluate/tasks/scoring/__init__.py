"""Scorers: an answer and its question give a score from 0 to 1. Published quirks are kept and named."""
