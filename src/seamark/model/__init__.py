"""The nouns: frozen data that every other room speaks of. No behaviour beyond reading them."""
