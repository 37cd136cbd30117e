"""`Trie` with its way to the GPU: the CPU's layer does not know the GPU's."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from flashtrie.cpu.trie import Trie as _Trie
from flashtrie.formats.progress import Progress
from flashtrie.formats.reader import open_artifact

if TYPE_CHECKING:
    from flashtrie.gpu.device import DeviceTrie


class Trie(_Trie):
    """A key set in an open artifact: flashtrie.cpu.trie.Trie, and `to_device`."""

    def to_device(self, progress: Progress | None = None) -> DeviceTrie:
        """Load it into the memory of the current CUDA device, with its checksums verified.

        Takes CuPy. Raises UsageError where there is none, or no GPU, ResourceError where there is
        too little memory, ArtifactError for a damaged payload.
        """
        from flashtrie.gpu.devices import missing

        if lacking := missing():
            raise lacking.error()
        from flashtrie.gpu.device import DeviceTrie

        return DeviceTrie(self.artifact, progress)


def open_trie(path: str | os.PathLike[str]) -> Trie:
    """Open an artifact. O(levels); see formats.reader.open_artifact for what it raises."""
    return Trie(open_artifact(path))
