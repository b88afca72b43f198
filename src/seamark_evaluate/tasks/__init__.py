"""Tasks of language models: benchmarks, their questions and the scores of answers."""
