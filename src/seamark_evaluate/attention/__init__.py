"""Attention of language models: methods as documents, their computation, and a model whose answers are known."""
