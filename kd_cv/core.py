"""Patches to descriptors: steps 1 to 3, written once for NumPy arrays and torch tensors.

Only operators and indexing that both libraries share are used, and every linear step is a
product with a constant matrix, so the same lines run on the CPU, on a GPU, under autograd and
in TorchScript. `c` stands for the constants of `Spec`, in the type of the input.

Shapes: b patches of P x P pixels, F spatial functions, D dimensions.
"""

# Added under the root of the magnitude, so that its derivative stays finite.
EPS = 1e-8
# Below this squared gradient an angle is rounding noise: no magnitude, and an angle of 0.
NO_GRADIENT = 1e-12
# A patch whose mean squared gradient is below this share of 1 + its mean square is flat.
FLAT = 1e-10


# The constants are default arguments because TorchScript knows no global floats.
def raw(  # type: ignore[no-untyped-def]
    x,
    smooth,
    diff,
    Phi,
    T,
    parts,
    eps: float = EPS,
    no_gradient: float = NO_GRADIENT,
    flat: float = FLAT,
):
    """Raw descriptors: patches (b, P, P) to (b, D), each part and the whole of unit norm.

    A patch without any gradient gives a row of zeros.
    """
    # Step 1, planes: gradients of the smoothed patch; cos and sin of theta without trigonometry.
    gx = smooth @ x @ diff.T
    gy = diff @ x @ smooth.T
    g2 = gx * gx + gy * gy
    none = g2 < no_gradient
    m = (g2 + none) ** 0.5
    weight = (m * (g2 >= no_gradient) + eps) ** 0.5
    cos1 = (gx + none) / m
    sin1 = gy / m
    cos2 = cos1 * cos1 - sin1 * sin1
    sin2 = 2 * sin1 * cos1
    cos3 = cos2 * cos1 - sin2 * sin1
    sin3 = sin2 * cos1 + cos2 * sin1

    # Step 2, spatial sums: V = sum_k (plane_k @ Phi) @ T_k.
    V = spatial_sum(weight, Phi) @ T[0]
    V = V + spatial_sum(weight * cos1, Phi) @ T[1] + spatial_sum(weight * sin1, Phi) @ T[4]
    V = V + spatial_sum(weight * cos2, Phi) @ T[2] + spatial_sum(weight * sin2, Phi) @ T[5]
    V = V + spatial_sum(weight * cos3, Phi) @ T[3] + spatial_sum(weight * sin3, Phi) @ T[6]

    # Step 3, first half: unit parts, unit whole, zero where the patch is flat.
    textured = g2.sum(-1).sum(-1) > flat * (x * x + 1).sum(-1).sum(-1)
    V = V * textured[:, None]
    return normalised(V / (nonzero((V * V) @ parts) ** 0.5 @ parts.T))


def spatial_sum(plane, Phi):  # type: ignore[no-untyped-def]
    """(b, P, P) against (P * P, F): (b, F)."""
    return plane.reshape(plane.shape[0], Phi.shape[0]) @ Phi


def project(V, mu, A):  # type: ignore[no-untyped-def]
    """Step 3, second half: A^T (V - mu), unit norm; rows of zeros stay so."""
    described = (V * V).sum(-1) > 0
    return normalised((V - mu) @ A * described[:, None])


def normalised(V):  # type: ignore[no-untyped-def]
    """Rows of unit norm; rows of zeros stay so."""
    return V / nonzero((V * V).sum(-1)[:, None]) ** 0.5


def nonzero(squares):  # type: ignore[no-untyped-def]
    """Zeros replaced by ones: a denominator that leaves rows of zeros as they are."""
    return squares + (squares == 0)
