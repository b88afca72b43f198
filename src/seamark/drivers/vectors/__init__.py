"""Vector stores behind one interface: a Collection is built, filled with vectors, and searched."""
