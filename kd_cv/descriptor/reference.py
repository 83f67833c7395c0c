"""Steps 1 to 3, patches to descriptors, for NumPy arrays and torch tensors.

Only operators and indexing common to both libraries are used, and every linear step is a product
with a constant matrix, so the same lines run on CPU and GPU, under autograd and in TorchScript.

Shapes: b patches of P x P pixels, F spatial functions, D dimensions. Constants: see `Spec`.
"""

# Added under the root of the magnitude, so that its derivative stays finite.
EPS = 1e-8
# Below this squared gradient an angle is rounding noise: magnitude 0, angle pi as in the
# authors' code.
NO_GRADIENT = 1e-12
# A patch is flat if its mean squared gradient is below this fraction of 1 + its mean square.
FLAT = 1e-10


# The constants are default arguments because TorchScript knows no global floats.
def gradients(  # type: ignore[no-untyped-def]
    x, smooth, diff, eps: float = EPS, no_gradient: float = NO_GRADIENT, flat: float = FLAT
):
    """Step 1: weight, cos and sin of theta, each (b, P, P), and textured (b,): not flat.

    Of the smoothed patches (b, P, P), without trigonometry.
    """
    gx = smooth @ x @ diff.T
    gy = diff @ x @ smooth.T
    g2 = gx * gx + gy * gy
    textured = g2.sum(-1).sum(-1) > flat * (x * x + 1).sum(-1).sum(-1)
    none = g2 < no_gradient
    m = (g2 + none) ** 0.5
    weight = (m * (g2 >= no_gradient) + eps) ** 0.5
    return weight, gx / m - m * none, gy / m, textured


def raw(x, smooth, diff, Phi, T, parts):  # type: ignore[no-untyped-def]
    """Describe patches (b, P, P): raw vectors (b, D), each part and the whole of unit norm.

    A patch without texture gives zeros.
    """
    weight, cos, sin, textured = gradients(x, smooth, diff)

    # Step 2: V = sum_k (plane_k @ Phi) @ T_k. The planes follow one from the other by the
    # angle-sum rules, each used as soon as it is there: autograd then keeps the fewest.
    V = spatial_sum(weight, Phi) @ T[0]
    cos_plane = weight * cos
    sin_plane = weight * sin
    V = V + spatial_sum(cos_plane, Phi) @ T[1] + spatial_sum(sin_plane, Phi) @ T[4]
    for k in range(2, 4):
        cos_plane, sin_plane = (
            cos_plane * cos - sin_plane * sin,
            sin_plane * cos + cos_plane * sin,
        )
        V = V + spatial_sum(cos_plane, Phi) @ T[k] + spatial_sum(sin_plane, Phi) @ T[k + 3]

    # Step 3, first half: unit parts, unit whole, zero where the patch is flat.
    V = V * textured[:, None]
    return normalised(V / (nonzero((V * V) @ parts) ** 0.5 @ parts.T))


def spatial_sum(plane, Phi):  # type: ignore[no-untyped-def]
    return plane.reshape(plane.shape[0], Phi.shape[0]) @ Phi


def normalised(V):  # type: ignore[no-untyped-def]
    """Normalise vectors; zeros stay zeros."""
    return V / nonzero((V * V).sum(-1)[:, None]) ** 0.5


def nonzero(values):  # type: ignore[no-untyped-def]
    """Replace zeros by ones: a denominator that keeps zeros."""
    return values + (values == 0)
