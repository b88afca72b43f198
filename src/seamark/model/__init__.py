"""Nouns: frozen data types shared by all other rooms. No behaviour beyond reading them."""
