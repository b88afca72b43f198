"""Vector stores behind one interface: a Collection is built, takes vectors in, and is searched."""
