"""How every test runs: property tests take the same examples each time, and a busy machine is no failure.

To look for new counterexamples: pytest --hypothesis-profile=explore
"""

from hypothesis import settings

settings.register_profile("heedful", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None, max_examples=2000)
settings.load_profile("heedful")
