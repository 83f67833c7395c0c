"""W_M: the gradient against two witnesses, and what training promises."""

import numpy as np
import pytest

from kd_cv.fit.scenes import Samples
from kd_cv.whitening import Statistics, Whitening, load, save
from kd_cv.whitening.trained import Sample, hardest, train


def parameters(K=7, dim=4, n=9, seed=0):
    rng = np.random.default_rng(seed)
    a = rng.normal(size=(n, K))
    return a, a + 0.7 * rng.normal(size=(n, K)), rng.normal(size=(K, dim)), rng.normal(size=dim)


def by_hand(a, b, M, c):
    """The loss, pair by pair."""
    y, w = ((x @ M - c) / np.linalg.norm(x @ M - c, axis=1, keepdims=True) for x in (a, b))
    total = 0.0
    for i in range(len(a)):
        wrong = [
            min(np.linalg.norm(y[i] - w[j]), np.linalg.norm(y[j] - w[i]))
            for j in range(len(a))
            if j != i
        ]
        total += max(0.0, 1 + np.linalg.norm(y[i] - w[i]) - min(wrong))
    return total / len(a)


def test_the_loss_is_that_of_the_hardest_wrong_pair():
    values = parameters()
    assert hardest(*values)[0] == pytest.approx(by_hand(*values), rel=1e-9)


def test_the_gradient_equals_differences():
    a, b, M, c = parameters()
    _, (of_M, of_c) = hardest(a, b, M, c)
    step = 1e-6
    for k in np.ndindex(M.shape):
        shift = np.zeros_like(M)
        shift[k] = step
        slope = (by_hand(a, b, M + shift, c) - by_hand(a, b, M - shift, c)) / (2 * step)
        assert of_M[k] == pytest.approx(slope, abs=1e-6)
    for k in range(len(c)):
        shift = np.zeros_like(c)
        shift[k] = step
        slope = (by_hand(a, b, M, c + shift) - by_hand(a, b, M, c - shift)) / (2 * step)
        assert of_c[k] == pytest.approx(slope, abs=1e-6)


def test_the_gradient_equals_that_of_torch():
    torch = pytest.importorskip("torch")
    a, b, M, c = parameters(K=30, dim=12, n=40, seed=3)
    _, (of_M, of_c) = hardest(a, b, M, c)
    tM, tc = (torch.tensor(p, requires_grad=True) for p in (M, c))
    y, w = (torch.nn.functional.normalize(torch.tensor(x) @ tM - tc) for x in (a, b))
    d = torch.sqrt(2 - 2 * y @ w.T)
    off = d + 1e6 * torch.eye(len(a))
    wrong = torch.minimum(off.min(dim=1).values, off.min(dim=0).values)
    torch.relu(1 + d.diagonal() - wrong).mean().backward()
    np.testing.assert_allclose(of_M, tM.grad.numpy(), atol=1e-12)
    np.testing.assert_allclose(of_c, tc.grad.numpy(), atol=1e-12)


def scenes(count, seed, points=150, D=24):
    """Points on few directions; what differs between views lies in others, and some views are bad,
    which a covariance takes too seriously."""
    rng = np.random.default_rng(5)
    signal, noise = rng.normal(size=(8, D)), rng.normal(size=(10, D))
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        latent = rng.normal(size=(points, 8)) @ signal
        views = [latent + rng.standard_t(1.5, size=(points, 10)) @ noise * 0.6 for _ in range(3)]
        X = np.concatenate(views)
        X /= np.linalg.norm(X, axis=1, keepdims=True)
        found.append(Sample(X.astype(np.float32), np.tile(np.arange(points), 3)))
    return found


def statistics_of(samples):
    statistics = Statistics(samples[0].X.shape[1])
    for sample in samples:
        n = len(sample.X) // 3
        pairs = np.concatenate([np.stack([np.arange(n), np.arange(n) + k * n], 1) for k in (1, 2)])
        statistics.update(sample.X, pairs)
    return statistics


def right_matches(whitening, variant, samples, dim):
    """How many of the first views find their point in the second."""
    rates = []
    for sample in samples:
        n = len(sample.X) // 3
        y = whitening.apply(sample.X, variant, dim)
        rates.append(np.mean((y[:n] @ y[n : 2 * n].T).argmax(axis=1) == np.arange(n)))
    return float(np.mean(rates))


@pytest.fixture(scope="module")
def trained():
    samples = scenes(10, seed=1)
    return Whitening.fit(statistics_of(samples), max_dim=16, samples=samples)


@pytest.mark.slow
def test_training_finds_more_matches_in_scenes_it_has_not_seen(trained):
    others = scenes(10, seed=2)
    for dim in (16, 8):
        ws, wm = (right_matches(trained, variant, others, dim) for variant in ("ws", "wm"))
        assert 1 - wm < 0.9 * (1 - ws)


def test_the_same_seed_gives_the_same_matrices():
    samples = scenes(3, seed=4)
    statistics = statistics_of(samples)
    A = np.eye(24)
    first, again = (train(samples, statistics.mean, A, 6, steps=30) for _ in range(2))
    assert all(np.array_equal(x, y) for x, y in zip(first, again, strict=True))
    other = train(samples, statistics.mean, A, 6, steps=30, seed=1)
    assert not np.array_equal(first[1], other[1])


def test_trained_matrices_are_stored(trained, tmp_path):
    save(tmp_path / "mine.npz", {("concat", 32): trained})
    back = load(tmp_path / "mine.npz")["concat", 32]
    assert back.has("wm") and np.array_equal(back.A_m, trained.A_m)
    assert back.provenance["trained_on"] == {"scenes": 10, "patches": 4500}
    variances = np.var(scenes(1, seed=1)[0].X @ trained.A_m, axis=0)
    assert variances[:4].mean() > variances[-4:].mean()  # the first columns say the most


def test_samples_of_many_scenes_are_limited(monkeypatch):
    monkeypatch.setattr(Samples, "MAX_SCENES", 3)
    monkeypatch.setattr(Samples, "MAX_ROWS", 100)
    kept = Samples(seed=0)
    points = np.array([0, 0, 1, 2, 2, 2, 3])
    small = Samples.of(np.ones((7, 4), np.float32), points)
    assert small.points.tolist() == [0, 0, 2, 2, 2]  # those seen once are of no use
    large = Samples.of(np.ones((600, 4), np.float32), np.arange(600) // 2)
    assert len(large.X) == 100 and (np.unique(large.points, return_counts=True)[1] == 2).all()
    for k in range(200):
        kept.add(Sample(np.full((2, 4), k, np.float32), np.zeros(2, np.int64)))
    assert len(kept.kept) == 3 and max(sample.X[0, 0] for sample in kept.kept) > 20
