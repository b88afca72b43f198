"""Stages at work: queues, threads, schedulers, and the names of the original benchmark."""
