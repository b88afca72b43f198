"""Fork server: a process with imported modules that forks for each request, so a job of a trial begins at once.

Importing NumPy, Arrow and a vendor's client takes a third of a second in every job of every trial. A fork server does
it once per run and gives each job a fresh process. It serves one run on one machine: it ends with the process it was
made for, or when idle for a while. Standard library only, as it runs in the services' environments too. The idea is
that of `multiprocessing.forkserver`, which serves its own parent only.
"""
