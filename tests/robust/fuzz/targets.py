"""What is fuzzed: one small function for each way that bytes and arguments of others come in.

A target takes any bytes. It returns, or raises one of its documented errors; anything else, and a
result that breaks a promise, is a finding.
"""

from calls import CALLS
from files import FILES

TARGETS = {**FILES, **CALLS}
