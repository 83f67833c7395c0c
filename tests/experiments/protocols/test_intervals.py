"""Intervals over pairs of images: alone, and of the difference of two candidates."""

import numpy as np
import pytest

from experiments.protocols.candidates import make_candidates
from experiments.protocols.matching import Plane, corner_errors, image_matching
from experiments.protocols.pairs import Measure
from experiments.protocols.scores import PairScore, interval, summaries
from experiments.scenes.sequences import ImageSet


def tables(count=60, shift=2.0):
    """Two candidates on pairs of very different difficulty, the one better by `shift` on each."""
    rng = np.random.default_rng(0)
    better, worse = [], []
    for _ in range(count):
        hard = rng.uniform(0, 80)
        better.append(PairScore([hard / 10, hard / 10 + 0.1], {"ap": 100 - hard}))
        lower = 100 - hard - shift + rng.normal(0, 0.1)
        worse.append(PairScore([hard / 10 + 1, hard / 10 + 1.1], {"ap": lower}))
    return {"better": better, "worse": worse}


@pytest.mark.slow
def test_the_same_draws_show_a_difference_that_two_intervals_hide():
    values = summaries(tables(), (5, 10), against="worse")
    better, worse = values["better"], values["worse"]
    assert better["ap low"] < worse["ap high"]  # they overlap
    assert 1.9 < better["ap gain low"] < better["ap gain"] < better["ap gain high"] < 2.1
    assert better["auc5 gain low"] > 0 and better["auc5 gain"] == better["auc5"] - worse["auc5"]
    assert "ap gain" not in worse and better["pairs"] == 60


def test_summaries_are_means_and_areas_by_hand():
    table = [PairScore([0.0, np.inf], {"ap": 20.0}), PairScore([0.0, 0.0], {"ap": 40.0})]
    (values,) = summaries({"one": table}, (5,)).values()
    assert values["ap"] == 30 and values["auc5"] == pytest.approx(75)
    assert values["ap low"] == 20 and values["ap high"] == 40
    assert values["auc5 low"] == pytest.approx(50) and values["auc5 high"] == pytest.approx(100)


def test_an_interval_of_means_is_that_of_the_normal_distribution():
    values = np.random.default_rng(1).normal(5, 2, 400)
    low, high = interval(values)
    error = 1.96 * values.std() / np.sqrt(400)
    assert low == pytest.approx(values.mean() - error, abs=0.03)
    assert high == pytest.approx(values.mean() + error, abs=0.03)


def test_each_seed_is_an_estimate_of_its_own():
    rng = np.random.default_rng(2)
    x0 = rng.uniform(0, 100, (40, 2))
    x1 = x0 + rng.normal(0, 1, x0.shape)
    x1[:20] = rng.uniform(0, 100, (20, 2))
    plane = Plane(np.eye(3), (100, 100), (100, 100))
    errors = corner_errors(x0, x1, plane, Measure(seeds=6))
    assert len(errors) == 6 and len(set(errors)) > 1
    assert errors[:3] == corner_errors(x0, x1, plane, Measure(seeds=3))


@pytest.mark.slow
def test_matching_gives_intervals_and_gains(camera, tmp_path, capsys):
    noise = np.random.default_rng(3).normal(0, 40, camera.shape)
    noisy = np.clip(camera + noise, 0, 255).astype(np.uint8)
    sets = [ImageSet("noisy", [camera, noisy, camera], np.stack([np.eye(3)] * 3))]
    measure = Measure(seeds=2, against="SIFT")
    raw, sift = image_matching(sets, make_candidates(["raw", "sift"]), measure, max_keypoints=200)
    assert raw.values["ap low"] < raw.values["ap"] < raw.values["ap high"]
    assert raw.values["ap gain"] == pytest.approx(raw.values["ap"] - sift.values["ap"])
