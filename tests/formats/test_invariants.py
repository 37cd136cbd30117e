"""verify says what is wrong and where, and never fails itself."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from flashtrie.formats import bits, content, invariants, payload, structure
from flashtrie.formats.errors import ArtifactChanged, ArtifactError
from flashtrie.formats.invariants import check
from flashtrie.formats.reader import Artifact, open_artifact
from flashtrie.formats.schema import COLUMN, PARAMETER, SECTIONS, Coding, padded_bytes
from tests.formats.damage import Document, change_header, change_section, reseal
from tests.formats.keysets import TINY
from tests.reference_builder import Row, reference_artifact

NAMES = [
    *("checksums", "padding", "bitmaps", "directories", "codings", "alphabet"),
    *("labels", "tree", "tails", "store", "max_length", "values"),
]


def wrong(path: Path) -> dict[str, str]:
    """The checks that fail, with their details."""
    with open_artifact(path) as artifact:
        checks = check(artifact, threads=2)
    assert [name for name, _, _ in checks] == NAMES
    assert all(detail for _, _, detail in checks)
    return {name: detail for name, ok, detail in checks if not ok}


def filled(path: Path) -> list[str]:
    """Sections of the file that have elements."""
    with open_artifact(path) as artifact:
        return [name for name, array in artifact.sections.items() if len(array)]


@pytest.fixture(params=[None, 512])
def pieces(request, monkeypatch):
    """With the usual pieces a small artifact has one of each kind."""
    if request.param:
        monkeypatch.setattr(content, "PIECE", request.param)
        monkeypatch.setattr(invariants, "PIECE", request.param)
        monkeypatch.setattr(structure, "PIECE", request.param)
        monkeypatch.setattr(payload, "_KEPT_BYTES", 0)


@pytest.mark.usefixtures("pieces")
def test_whole(whole):
    assert wrong(whole) == {}


def test_many_shapes(tmp_path):
    one_level = [((token,), token) for token in range(0, 4000, 3)]
    chain = [(tuple(range(n)), None) for n in range(1, 70)]
    long = [((5,) * 4096, 0), ((5,) * 4095, 1)]
    long_tails = [((n, *range(n, n + 4000)), 2**62) for n in range(3)]
    wide = [((0, n, n % 7, 1, 2), -(2**63)) for n in range(12_000)]
    extremes = [((2**32 - 2, 0, 65_536), 2**63 - 1), ((1,), -(2**63))]
    sets: list[Sequence[Row]] = [TINY, [((0,), None)], one_level, chain, long_tails, wide, extremes]
    for i, rows in enumerate(sets):
        for kind in ("implicit", "indexed"):
            path = tmp_path / f"{i}-{kind}.trie"
            reference_artifact(path, rows, tails=kind)
            assert wrong(path) == {}, (i, kind)
    reference_artifact(tmp_path / "long.trie", long)
    assert wrong(tmp_path / "long.trie") == {}


def test_threads_and_progress(whole):
    seen = []
    with open_artifact(whole) as artifact:
        expected = check(artifact, threads=1, progress=lambda *step: seen.append(step))
        for threads in (2, 5):
            assert check(artifact, threads=threads) == expected
    for phase in {step[0] for step in seen}:
        last = [step for step in seen if step[0] == phase][-1]
        assert last[1] == last[2]


@pytest.mark.parametrize("section", [section.name for section in SECTIONS])
def test_flipped_bit(copy, section):
    data = copy.read_bytes()
    with open_artifact(copy) as artifact:
        offset, array = artifact.offsets[section], artifact.sections[section]
        size = padded_bytes(section, len(array))
    if section == "level_table":
        places = [offset, offset + size - 1]
        for place in places:
            copy.write_bytes(data[:place] + bytes([data[place] ^ 4]) + data[place + 1 :])
            with pytest.raises(ArtifactError, match="checksum of section level_table"):
                open_artifact(copy)
        return
    for place in {offset, offset + array.nbytes - 1, offset + size - 1} if size else set():
        copy.write_bytes(data[:place] + bytes([data[place] ^ 4]) + data[place + 1 :])
        found = wrong(copy)
        assert f"section {section}" in found["checksums"]
        assert f"{offset:,} to {offset + size - 1:,} of the file" in found["checksums"]
        if place >= offset + array.nbytes:
            assert section in found["padding"]


def test_the_chunk_is_named(tmp_path):
    path = tmp_path / "x.trie"
    reference_artifact(path, [((n,), n * 2**40) for n in range(200_000)])
    with open_artifact(path) as artifact:
        offset = artifact.offsets["values"]
        size = padded_bytes("values", artifact.lengths["values"])
        assert 1 << 20 < size < 2 << 20
    data = bytearray(path.read_bytes())
    data[offset + (1 << 20)] ^= 1
    path.write_bytes(data)
    first = offset + (1 << 20)
    assert wrong(path)["checksums"] == (
        f"section values, chunk 1 (bytes {first:,} to {offset + size - 1:,} of the file) "
        "has another digest than was written"
    )


def test_header_bits(copy):
    data = copy.read_bytes()
    with open_artifact(copy) as artifact:
        end = artifact.header_bytes
    for place in range(0, end, 13):
        copy.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        with pytest.raises(ArtifactError):
            open_artifact(copy)


def test_header_states_another_checksum(copy):
    def change(document):
        document["__metadata__"]["checksum.tail"] = "0" * 32

    copy.write_bytes(change_header(copy.read_bytes(), change))
    assert wrong(copy) == {"checksums": "section tail has another checksum than the header states"}


@pytest.mark.parametrize("column", range(14))
@pytest.mark.parametrize("value", [-1, 2**62, -(2**63), "less", "more"])
def test_level_table_that_lies(copy, column, value):
    """With right checksums and digest: not even opened, or found wrong."""
    data = bytearray(copy.read_bytes())
    with open_artifact(copy) as artifact:
        table = artifact.sections["level_table"].reshape(artifact.header.levels, -1).copy()
        start = artifact.header_bytes
    before = int(table[1, column])
    table[1, column] = {"less": before - 1, "more": before + 1}.get(value, value)
    data[start : start + table.nbytes] = table.tobytes()
    reseal(copy, bytes(data))
    try:
        assert wrong(copy)
    except ArtifactError as error:
        assert "damaged artifact" in str(error)


@pytest.mark.usefixtures("pieces")
def test_bitmaps_and_directories(copy):
    """Any other bit or entry is found, with right checksums."""
    data = copy.read_bytes()
    rng = np.random.default_rng(0)
    names = [
        name
        for name in filled(copy)
        if name.endswith(("_rank", "_select", "_flag"))
        or name in ("root", "inner", "louds", "terminal", "tail", "tail_long", "store_end")
    ]
    assert len(names) > 20
    for name in names:
        copy.write_bytes(data)
        with open_artifact(copy) as artifact:
            array = artifact.sections[name]
            element = int(rng.integers(len(array)))
            value = int(array[element]) ^ 1 << int(rng.integers(array.itemsize * 8))
        change_section(copy, name, element, value)
        found = wrong(copy)
        assert "checksums" not in found
        assert name.removesuffix("_rank").removesuffix("_select") in str(found), name
        assert {"bitmaps", "directories"} & set(found)
        assert found["values"] == "not checked: bitmaps or directories are wrong"


@pytest.mark.usefixtures("pieces")
@pytest.mark.parametrize("seed", range(3))
def test_garbage(copy, seed):
    """Sections of random bytes, each alone and all together: an answer, no failure."""
    data = copy.read_bytes()
    rng = np.random.default_rng(seed)
    with open_artifact(copy) as artifact:
        places = {
            name: (artifact.offsets[name], array.nbytes)
            for name, array in artifact.sections.items()
            if len(array) and name not in ("level_table", "chunk_digests")
        }
    for names in [*([name] for name in places), list(places)]:
        changed = bytearray(data)
        for offset, size in (places[name] for name in names):
            pattern = [rng.bytes(size), b"\xff" * size, bytes(size)][seed % 3]
            changed[offset : offset + size] = pattern
        reseal(copy, bytes(changed))
        assert changed == data or wrong(copy) or names == ["values"]


def rebuilt(copy: Path, sections: dict[str, npt.NDArray[np.uint64]]) -> None:
    """Put arrays in the place of sections and make the file consistent again."""
    data = bytearray(copy.read_bytes())
    with open_artifact(copy) as artifact:
        for name, array in sections.items():
            assert array.nbytes == artifact.sections[name].nbytes
            offset = artifact.offsets[name]
            data[offset : offset + array.nbytes] = array.tobytes()
    reseal(copy, bytes(data))


def test_alphabet(copy):
    with open_artifact(copy) as artifact:
        alphabet = artifact.sections["alphabet"].copy()
        vocab_size = artifact.header.vocab_size
    before = copy.read_bytes()
    change_section(copy, "alphabet", 3, int(alphabet[8]))
    assert wrong(copy) == {"alphabet": f"token {alphabet[8]:,} has two ranks"}
    copy.write_bytes(before)
    change_section(copy, "alphabet", 3, vocab_size)
    assert f"token {vocab_size:,} with vocab_size {vocab_size:,}" in wrong(copy)["alphabet"]


def labels(artifact: Artifact, d: int) -> npt.NDArray[np.uint64]:
    """The labels of level `d`."""
    row = artifact.parameters[d - 1]
    n, *_ = row
    low, high, highs = row[COLUMN["label_low_bits"] :][:3].tolist()
    parts = {
        name: artifact.sections[f"label_{name}"][row[PARAMETER[f"label_{name}_offset"]] :]
        for name in ("low", "flag", "high")
    }
    coding = Coding(low, high, highs)
    return bits.decode(parts["low"], parts["flag"], parts["high"], int(n), coding)


def test_labels(tmp_path):
    path = tmp_path / "x.trie"
    rows = [((0, n, m), None) for n in range(20) for m in range(5)]
    reference_artifact(path, rows, low_bits=16)
    with open_artifact(path) as artifact:
        values = labels(artifact, 3)
        assert (np.diff(values.astype(int)).reshape(-1)[:4] > 0).all()
        packed = artifact.sections["label_low"].copy()
        first = artifact.parameters[2, PARAMETER["label_low_offset"]]
    before = path.read_bytes()
    swapped = values.copy()
    swapped[[6, 7]] = swapped[[7, 6]]
    for level, change in (("rise above", swapped), ("not below 20", values + np.uint64(17))):
        path.write_bytes(before)
        packed[first:] = bits.pack(change, 16)
        rebuilt(path, {"label_low": packed})
        assert level in wrong(path)["labels"]
        assert "level 3" in wrong(path)["labels"]


def test_single_keyword_below_an_inner_node(tmp_path):
    """{[0], [0, 1, 2]} as if [0, 1] were there too."""
    path = tmp_path / "x.trie"
    reference_artifact(path, [((0,), None), ((0, 1), None), ((0, 1, 2), None)])
    with open_artifact(path) as artifact:
        assert artifact.sections["terminal"].tolist() == [1, 1]
    data = path.read_bytes()

    def change(document):
        document["__metadata__"]["keywords"] = "2"

    table = bytearray(change_header(data, change))
    with open_artifact(path) as artifact:
        start, offset = artifact.header_bytes, artifact.offsets["terminal"]
    table[start + 14 * 8 + 2 * 8] = 0  # terminals of level 2
    table[offset + 8] = 0
    reseal(path, bytes(table))
    assert wrong(path) == {"tree": "level 2: inner node 0 has a single keyword below it"}


def test_codings(tmp_path):
    path = tmp_path / "x.trie"
    rows = [((0, n), None) for n in range(300)]
    reference_artifact(path, rows, low_bits=4)
    with open_artifact(path) as artifact:
        coding = artifact.header.level_table[1, COLUMN["label_low_bits"] :][:3]
        assert coding.tolist() == [4, 5, 284]
        high = artifact.sections["label_high"].copy()
        values = bits.unpack(high, 5, 284)
    before = path.read_bytes()
    changes = {
        "is zero": np.where(values == 7, 0, values),
        "4 bits are needed where 5": np.minimum(values, 15),
    }
    for cause, change in changes.items():
        path.write_bytes(before)
        rebuilt(path, {"label_high": bits.pack(change, 5)})
        assert cause in wrong(path)["codings"]
    path.write_bytes(before)
    change_section(path, "label_high", len(high) - 1, int(high[-1]) | 1 << 63)
    assert "behind the last element" in wrong(path)["codings"]


def test_values(tmp_path):
    path = tmp_path / "x.trie"
    reference_artifact(path, [((n,), 100 + n) for n in range(10)])
    before = path.read_bytes()
    with open_artifact(path) as artifact:
        assert artifact.header.value_bits == 4
        packed = int(artifact.sections["values"][0])
    for number, cause in (
        (packed | 1, "the smallest value is 101, not 100"),
        (packed & 0x7777777777, "3 bits are needed where 4 are stated"),
        (packed | 1 << 40, "bits behind the last value are not zero"),
    ):
        path.write_bytes(before)
        change_section(path, "values", 0, number)
        assert wrong(path) == {"values": cause}

    def change(document):
        document["__metadata__"]["value_min"] = str(2**63 - 5)

    path.write_bytes(change_header(before, change))
    assert wrong(path) == {"values": f"a value is {2**63 + 4}, above 2^63 - 1"}


def stated_length(path: Path, length: int) -> None:
    def change(document: Document) -> None:
        document["__metadata__"]["max_length"] = str(length)

    path.write_bytes(change_header(path.read_bytes(), change))


@pytest.mark.parametrize("kind", ["implicit", "indexed"])
def test_lengths(tmp_path, kind):
    path = tmp_path / "x.trie"
    rows = [((1, 2, 3, 4, 5), None), ((2, 7, 8), None), ((3, 8), None)]
    reference_artifact(path, rows, tails=kind)
    stated_length(path, 6)
    assert wrong(path) == {"max_length": "the longest keyword has 5 tokens where 6 are stated"}
    stated_length(path, 4)
    assert "has 4 tokens, 2 to 3 are right" in wrong(path)["store"]


def test_suffix_indices(tmp_path):
    """Store: 1 2 3 and 5 5, three leaves at the first, of which one at its suffix 2 3."""
    path = tmp_path / "x.trie"
    tails = [(1, 2, 3), (1, 2, 3), (2, 3), (5, 5)]
    rows = [((10 + n, *tail), None) for n, tail in enumerate(tails)]
    reference_artifact(path, rows, tails="indexed")
    with open_artifact(path) as artifact:
        assert artifact.header.store_tokens == 5
        width = int(artifact.header.level_table[0, COLUMN["tail_index_low_bits"]])
        values = bits.unpack(artifact.sections["tail_index_low"], width, 4)
    assert values.tolist() == [0, 0, 1, 3]
    before = path.read_bytes()
    for change, name, cause in (
        ([0, 0, 2, 3], "tails", "long tail 2 starts at store position 2, where no tail of 2 to"),
        ([0, 0, 5, 3], "tails", "element 2 is 5, not below 5"),
        ([0, 0, 15, 3], "tails", "element 2 is 15, not below 5"),
        ([1, 1, 1, 3], "store", "no leaf has tail 0 as its own"),
        ([0, 3, 3, 3], "store", "tail 1 has more leaves than the one before it"),
    ):
        path.write_bytes(before)
        rebuilt(path, {"tail_index_low": bits.pack(np.array(change), width)})
        assert cause in wrong(path)[name]


def test_order_of_the_store(tmp_path):
    """Tails of equal use stand by their last tokens first, and none ends another."""
    path = tmp_path / "x.trie"
    rows = [((10, 1, 1, 7), None), ((11, 2, 2, 8), None), ((12, 1, 3), None)]
    reference_artifact(path, rows, tails="indexed", low_bits=4)
    with open_artifact(path) as artifact:
        tokens = bits.unpack(artifact.sections["store_low"], 4, 8)
        index = bits.unpack(artifact.sections["tail_index_low"], 4, 3).tolist()
        alphabet = artifact.sections["alphabet"]
        stored = alphabet[tokens].tolist()
    before = path.read_bytes()
    assert stored == [1, 3, 1, 1, 7, 2, 2, 8] and index == [2, 5, 0]
    one, two, three = tokens[0], tokens[5], tokens[1]
    seven, eight = tokens[4], tokens[7]
    for change, cause in (
        ([one, three, two, two, eight, one, one, seven], "tail 2 does not follow"),
        ([one, three, one, one, seven, one, one, seven], "tail 2 does not follow"),
        ([one, three, two, one, three, one, one, seven], "tail 1 does not follow"),
    ):
        path.write_bytes(before)
        rebuilt(path, {"store_low": bits.pack(np.array(change), 4)})
        assert cause in wrong(path)["store"]


def test_ends_in_the_store(tmp_path):
    path = tmp_path / "x.trie"
    reference_artifact(path, [((1, 2, 3, 4), None), ((2, 3, 3, 3), None)], tails="implicit")
    with open_artifact(path) as artifact:
        assert artifact.sections["store_end"].tolist() == [0b100100]
    change_section(path, "store_end", 0, 0b110000)
    assert "ends at position 4 has 5 tokens, 2 to 3 are right" in wrong(path)["store"]
    change_section(path, "store_end", 0, 0b100001)
    assert "ends at position 0 has 1 tokens, 2 to 3 are right" in wrong(path)["store"]
    change_section(path, "store_end", 0, 0b010100)
    assert "the last token ends no tail" in wrong(path)["bitmaps"]


def test_keyword_too_long_for_its_level(tmp_path):
    """A tail that would be right on level 1 hangs on level 2."""
    path = tmp_path / "x.trie"
    rows = [((1, 2, 3, 4, 5), None), ((2, 3, 4), None), ((2, 4, 5, 6), None)]
    reference_artifact(path, rows, tails="implicit")
    with open_artifact(path) as artifact:
        assert artifact.sections["store_end"].tolist() == [0b101000]
    change_section(path, "store_end", 0, 0b100010)
    assert "ends a keyword of 6 tokens" in wrong(path)["tails"]


def test_cut_while_it_is_checked(copy):
    with open_artifact(copy) as artifact:
        os.truncate(copy, copy.stat().st_size - 64)
        with pytest.raises(ArtifactChanged):
            check(artifact)
