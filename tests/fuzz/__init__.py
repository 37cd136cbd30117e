"""Artifacts that were changed by a seed, each used in a process that may crash or hang.

`bases.py` has right artifacts, `mutants.py` makes a wrong one of a base and a seed, `exercise.py`
asks it everything that can be asked, `worker.py` does so in a process of its own whose memory ends
at unreadable pages (`guard.py`), and `runner.py` watches it. `test_mutants.py` runs some thousand;
`python -m benchmarks.faults` more. `coverage.py` is the other kind of fuzz, guided by coverage.
"""
