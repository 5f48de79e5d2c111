"""Attempts to get out of a sandbox, each run inside one by the system's Python.

`python3 -m tests.sandbox.probes NAME FACTS` makes one attempt. FACTS is a JSON file that says where the planted secrets
and listeners are. An attempt that succeeds prints what it got after `ESCAPED`; one that fails may raise whatever it
likes. The package is copied into the sandbox, so it needs nothing but the standard library.
"""
