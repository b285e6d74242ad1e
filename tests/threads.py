"""How many threads tests use: one. Their models are too small to gain from a second, and would wait for it on a busy machine.

`make test-numerics` sets TRANSDUCE_TEST_THREADS to check that other numbers of threads give the same results.
"""

import os

THREADS = int(os.environ.get("TRANSDUCE_TEST_THREADS", "1"))
