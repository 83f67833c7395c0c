"""The tasks of HPatches against the numbers of the benchmark's own code."""

import cv2
import numpy as np
import pytest

from experiments.protocols.hpatches import scores_of_descriptors
from experiments.protocols.patch_sets import read_hpatches_strips
from experiments.protocols.strips import cut, write_strips
from experiments.protocols.tasks import draw_tasks, read_tasks, write_tasks

KINDS = ["ref", *(f"{letter}{k}" for letter in "eht" for k in range(1, 6))]

# Of the benchmark (hpatches/hpatches-benchmark, e0c993c) on the rows and tasks below.
OFFICIAL = {
    "verification easy near": 85.0031094088915,
    "verification easy far": 73.04549331731756,
    "matching easy": 60.9504088209475,
    "retrieval easy": 88.42738095253094,
    "verification hard near": 59.84552903101129,
    "verification hard far": 47.8240718267213,
    "matching hard": 11.223942355761238,
    "retrieval hard": 36.69574346108731,
    "verification tough near": 38.98835832183876,
    "verification tough far": 28.51782063998285,
    "matching tough": 2.222359008767044,
    "retrieval tough": 12.92980955029797,
}


def integer_rows(seed=7):
    """Descriptors of small integers, so that distances are exact and ties abound."""
    rng = np.random.default_rng(seed)
    noise = {"r": 0, "e": 1, "h": 2, "t": 3}
    rows = {}
    for name, count in (("i_one", 23), ("v_two", 31), ("v_three", 17)):
        base = rng.integers(0, 4, (count, 6))
        rows[name] = {
            kind: (base + rng.integers(0, 1 + noise[kind[0]], base.shape)).astype(np.float32)
            for kind in KINDS
        }
    return rows


def tasks_of(rows):
    contrast = {name: np.full(len(strips["ref"]), 50.0) for name, strips in rows.items()}
    return draw_tasks(contrast, pairs=200, queries=20, distractors=40, seed=1)


def test_scores_are_those_of_the_benchmark():
    rows = integer_rows()
    found = scores_of_descriptors(rows, tasks_of(rows))
    for key, value in OFFICIAL.items():
        assert found[key] == pytest.approx(value, abs=1e-8), key
    levels = [found[f"retrieval {level}"] for level in ("easy", "hard", "tough")]
    assert found["retrieval"] == pytest.approx(np.mean(levels))


def test_tasks_are_drawn_as_the_benchmark_draws_them():
    rng = np.random.default_rng(0)
    contrast = {"a": rng.uniform(0, 30, 400), "b": rng.uniform(0, 30, 90), "c": np.full(60, 20.0)}
    count = np.array([len(values) for values in contrast.values()])
    tasks = draw_tasks(contrast, pairs=6000, queries=50, distractors=300)
    s0, t0, i0, s1, t1, i1 = tasks.positive.T
    assert (s0 == s1).all() and (i0 == i1).all() and (t0 != t1).all()
    assert set(t0.tolist()) == set(t1.tolist()) == set(range(5))  # never the sixth image
    assert (np.abs(np.bincount(s0) - 2000) < 200).all()  # sequences alike, however large
    assert (tasks.near[:, :5] == tasks.positive[:, :5]).all() and (tasks.near[:, 5] != i0).all()
    assert (tasks.far[:, :3] == tasks.positive[:, :3]).all() and (tasks.far[:, 4] == t1).all()
    assert (tasks.far[:, 5] < count[tasks.far[:, 3]]).all()
    assert ((tasks.far[:, 3] != s0) | (tasks.far[:, 5] != i0)).all()
    retrieved = np.concatenate([tasks.queries, tasks.distractors])
    assert len(np.unique(retrieved, axis=0)) == len(retrieved) == 350
    names = list(contrast)
    assert all(contrast[names[s]][i] > 10 for s, i in retrieved.tolist())
    again = draw_tasks(contrast, pairs=6000, queries=50, distractors=300)
    assert (again.far == tasks.far).all() and (again.queries == tasks.queries).all()


def test_tasks_come_back_from_their_files(tmp_path):
    tasks = tasks_of(integer_rows())
    write_tasks(tmp_path, tasks, "small")
    header, first = (tmp_path / "verif_pos_split-small.csv").read_text().splitlines()[:2]
    assert header == "s1,t1,idx1,s2,t2,idx2" and first.split(",")[0] in tasks.sequences
    back = read_tasks(tmp_path, "small")
    assert back.sequences == tasks.sequences
    for field in ("positive", "near", "far", "queries", "distractors"):
        np.testing.assert_array_equal(getattr(back, field), getattr(tasks, field))
    with pytest.raises(ValueError, match="no split 'large'"):
        read_tasks(tmp_path, "large")
    file = tmp_path / "retr_queries_split-small.csv"
    file.write_text("s,idx\nelsewhere,3\n")
    with pytest.raises(ValueError, match=r"line 2.*elsewhere"):
        read_tasks(tmp_path, "small")
    file.write_text("sequence,patch\n")
    with pytest.raises(ValueError, match="expected the columns s,idx"):
        read_tasks(tmp_path, "small")


def test_written_strips_are_read_back(tmp_path):
    rng = np.random.default_rng(3)
    strips = {kind: rng.integers(0, 256, (3, 65, 65), dtype=np.uint8) for kind in KINDS}
    write_strips(tmp_path / "v_some", strips)
    image = cv2.imread(str(tmp_path / "v_some" / "t5.png"), cv2.IMREAD_GRAYSCALE)
    assert image.shape == (3 * 65, 65)
    for kind, patches in read_hpatches_strips(tmp_path / "v_some").items():
        np.testing.assert_array_equal(patches, strips[kind])


def test_a_patch_is_cut_out_under_an_affine_map():
    # A plane of gray values has the same plane in every patch of it, seen through the map.
    y, x = np.mgrid[:80, :120]
    gray = (x + y).astype(np.uint8)
    A = np.array([[[30.0, 6.0], [-8.0, 24.0]]])
    (patch,) = cut(gray, np.array([[60.0, 40.0]]), A, 31)
    u = (np.arange(31) - 15) / 31
    truth = 100 + 22.0 * u[None, :] + 30.0 * u[:, None]
    np.testing.assert_allclose(patch, truth, atol=0.6)  # rounded to whole gray values
