"""Persistent servers: started, listed, checked and ended one by one, outside of any trial."""
