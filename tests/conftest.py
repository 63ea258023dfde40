"""How every test runs: property tests take the same examples each time, and a busy machine is no failure.

To look for new counterexamples: pytest --hypothesis-profile=explore
"""

import signal
import threading

from hypothesis import settings

settings.register_profile("heedful", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None, max_examples=2000)
settings.load_profile("heedful")

# Started in the background of a script, a process ignores Ctrl-C, and so do its children: the tests send it on purpose.
if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
