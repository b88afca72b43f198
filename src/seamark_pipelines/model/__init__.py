"""A pipeline and a query as data."""
