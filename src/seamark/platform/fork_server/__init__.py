"""A process that has imported already and forks for whoever asks: a job of a trial begins at once.

Importing NumPy, Arrow and a vendor's client takes a third of a second, in every job of every trial. A fork server
does it once for a run and then gives each job a fresh process of its own. It serves one run on one machine: it ends
with the process it was made for, or when nobody has asked for a while. Uses the standard library alone, as it runs
in the services' environments too. The idea is that of `multiprocessing.forkserver`, which serves its own parent only.
"""
