"""`pytest -p tests.emulator.plugin -m "gpu and not hardware"`: tests on the emulated GPU."""

from tests.emulator import cupy

cupy.install()
