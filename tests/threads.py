"""How many threads tests ask for: one, since their models gain nothing from a second and wait for it on a busy machine.

`make test-numerics` sets TRANSDUCE_TEST_THREADS, to see that another number changes nothing.
"""

import os

THREADS = int(os.environ.get("TRANSDUCE_TEST_THREADS", "1"))
