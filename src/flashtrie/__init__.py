"""FlashTrie: tries of token sequences in one file, and beam search in them.

A query is one table of proposals, K tokens for each of T steps: the same for every beam, whatever
its prefix.

    flashtrie.build(["keywords.parquet"], "keywords.trie")
    with flashtrie.open("keywords.trie") as trie:
        trie.lookup([[12, 7, 93]])

Importing this costs nothing: what stands behind a name is loaded with its first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flashtrie.builder.build import BuildReport, build
    from flashtrie.formats.errors import (
        ArtifactChanged,
        ArtifactError,
        CheckFailed,
        FlashTrieError,
        InputError,
        NewerFormatError,
        OutputError,
        ResourceError,
        UsageError,
    )
    from flashtrie.formats.search import SearchResult
    from flashtrie.trie import Trie
    from flashtrie.trie import open_trie as open

__version__ = "0.1.0"

__all__ = [
    "ArtifactChanged",
    "ArtifactError",
    "BuildReport",
    "CheckFailed",
    "FlashTrieError",
    "InputError",
    "NewerFormatError",
    "OutputError",
    "ResourceError",
    "SearchResult",
    "Trie",
    "UsageError",
    "build",
    "open",
]

_MODULES = {
    "BuildReport": "builder.build",
    "build": "builder.build",
    "Trie": "trie",
    "open": "trie",
    "SearchResult": "formats.search",
}
_NAMES = {"open": "open_trie"}


def __getattr__(name: str) -> Any:
    """Load what stands behind a public name."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f"{__name__}.{_MODULES.get(name, 'formats.errors')}")
    globals()[name] = value = getattr(module, _NAMES.get(name, name))
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
