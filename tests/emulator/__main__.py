"""Exit code 1, and why, where the emulated GPU takes what this machine does not have."""

import sys

from tests.emulator.translate import missing

reason = missing()
if reason:
    print(f"no tests on the emulated GPU, which takes Linux on x86-64 and g++ 12: {reason}")
sys.exit(bool(reason))
