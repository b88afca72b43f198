"""Other tools as the load of a trial: each is called, and its results converted into samples."""
