"""Nouns of the results' JSON files: frozen, one for each file, without I/O. storage reads and writes them."""
