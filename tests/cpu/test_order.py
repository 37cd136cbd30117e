"""Order keys, selection and sort, against Python's sort."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from numba import njit

from flashtrie.cpu import order
from flashtrie.cpu.memory import PART_BYTES, table_of

SIZES = [1, 2, 31, 32, 33, 63, 65, 99, 2047, 2049, 5000]


@njit
def make_keys(scores, beams, positions, keys, back):
    for i in range(len(scores)):
        keys[i] = order.order_key(scores[i], beams[i], positions[i])
        back[i] = order.score_of(keys[i])


@njit
def run_cut(table, n, most):
    scratch = order.scratch_at(table + PART_BYTES)
    return order.cut(order.candidates_at(table), n, most, scratch)


@njit
def run_sort(table, n):
    order.sort(order.candidates_at(table), n, order.scratch_at(table + PART_BYTES))


def candidates_of(keys):
    candidates = order.make_candidates(len(keys))
    candidates.key[:] = keys
    candidates.node[:] = np.arange(len(keys))
    return candidates


def key_sets():
    rng = np.random.default_rng(0)
    for n in SIZES:
        scores = -np.abs(rng.normal(10, 4, n)).astype(np.float32)
        for scores in (scores, np.round(scores), np.full(n, -1, np.float32)):
            beams = np.sort(rng.integers(0, 65_536, n))
            # A position for each candidate of a beam.
            positions = rng.permutation(65_536)[:n]
            keys = np.empty(n, np.uint64)
            make_keys(scores, beams, positions, keys, np.empty(n, np.float32))
            yield keys
            yield rng.permutation(keys)


def test_keys_order_by_score_then_beam_then_position():
    huge, tiny = np.finfo(np.float32).max, np.float32(1e-45)
    scores = [huge, 2.5, 1.0, tiny, 0.0, -tiny, -1.0, -1.0000001, -2.5, -huge]
    beams = positions = [0, 1, 2, 65_535]
    rows = list(itertools.product(scores, beams, positions))
    columns = [np.array(column) for column in zip(*rows, strict=True)]
    keys, back = np.empty(len(rows), np.uint64), np.empty(len(rows), np.float32)
    make_keys(columns[0].astype(np.float32), columns[1], columns[2], keys, back)
    assert keys.tolist() == sorted(set(keys.tolist()))
    assert back.tobytes() == columns[0].astype(np.float32).tobytes()


def test_sort():
    for keys in key_sets():
        candidates = candidates_of(keys)
        scratch = order.make_scratch(len(keys))
        table = table_of(candidates, scratch)
        run_sort(table.ctypes.data, len(keys))
        expected = np.argsort(keys, kind="stable")
        assert candidates.node.tolist() == expected.tolist()
        assert candidates.key.tolist() == keys[expected].tolist()


@pytest.mark.parametrize("share", [0.0, 0.3, 0.5, 1.0])
def test_cut_keeps_the_first_in_order_where_they_stand(share):
    for keys in key_sets():
        most = max(1, round(share * len(keys)))
        candidates = candidates_of(keys)
        scratch = order.make_scratch(len(keys))
        table = table_of(candidates, scratch)
        left, worst = run_cut(table.ctypes.data, len(keys), most)
        assert left == most
        assert worst == np.sort(keys)[most - 1]
        kept = np.flatnonzero(keys <= worst)
        assert candidates.node[:most].tolist() == kept.tolist()
        assert candidates.key[:most].tolist() == keys[kept].tolist()


def test_cut_of_equal_keys_of_a_wrong_payload_ends():
    candidates = candidates_of(np.full(100, 7, np.uint64))
    scratch = order.make_scratch(100)
    table = table_of(candidates, scratch)
    assert run_cut(table.ctypes.data, 100, 10) == (10, 7)
