"""Children of a process that has searched: they have none of its threads."""

from __future__ import annotations

import subprocess
import sys

# Servers that load before they fork do this. A child that waits for threads of its parent is ended
# by its alarm.
_SEARCHES = """
import os, signal
import numpy as np
import flashtrie
trie = flashtrie.open({path!r})
rng = np.random.default_rng(0)
tokens = rng.integers(0, 40, (8, 3, 30))
logprobs = np.log(rng.random(tokens.shape)).astype(np.float32)
def search():
    return trie.search(tokens, logprobs, beam_width=20, threads=4).tokens.tolist()
expected = search()
children = []
for _ in range(3):
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        os._exit(search() != expected)
    children.append(child)
print([os.waitpid(child, 0)[1] for child in children], search() == expected)
"""

_HELD = """
import os, signal, time
from flashtrie.cpu.threads import Workers
workers = Workers()
workers.run(lambda i: time.sleep(0.01), 4, 4)
with workers._lock:
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        done = []
        workers.run(done.append, 9, 3)
        os._exit(sorted(done) != list(range(9)))
print(os.waitpid(child, 0)[1])
"""


def test_searches_in_children(build_trie):
    rows = [(a, b, (a * b) % 7) for a in range(40) for b in range(40)]
    with build_trie(rows) as trie:
        assert _run(_SEARCHES.format(path=str(trie.artifact.path))) == "[0, 0, 0] True\n"


def test_a_lock_that_is_held_when_a_process_forks():
    assert _run(_HELD) == "0\n"


def _run(program: str) -> str:
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=240)
    return ended.stdout.decode() or ended.stderr.decode()
