"""Evaluations: models x methods of attention x benchmarks, and a server with methods of attention."""
