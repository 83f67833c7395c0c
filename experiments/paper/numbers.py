"""Numbers that the paper prints, to show beside kd_cv.

Mukundan, Tolias, Bursuc, Jegou, Chum: Understanding and Improving Kernel Local Descriptors. Keys
are kinds of descriptors: a kernel, "+" and a whitening.
"""

# Table 1: FPR95 (%) by test set, then training set; without whitening nothing was trained.
_KINDS = (
    "polar", "cart", "concat", "polar+pcasqrt", "polar+ws", "cart+ws", "concat+ws", "concat+wua",
    "concat+wus",
)  # fmt: skip
_TABLE_1 = {
    ("liberty", "notredame"): (24.34, 34.06, 26.16, 12.09, 8.55, 17.31, 7.46, 10.59, 10.61),
    ("liberty", "yosemite"): (24.34, 34.06, 26.16, 13.13, 10.48, 20.34, 9.85, 11.17, 11.14),
    ("notredame", "liberty"): (16.06, 34.10, 20.04, 5.16, 4.40, 10.90, 3.45, 3.80, 4.27),
    ("notredame", "yosemite"): (16.06, 34.10, 20.04, 5.41, 3.94, 11.85, 3.55, 4.36, 4.46),
    ("yosemite", "liberty"): (26.85, 39.47, 29.91, 7.52, 8.86, 16.84, 6.47, 5.58, 6.75),
    ("yosemite", "notredame"): (26.85, 39.47, 29.91, 6.49, 6.12, 13.55, 4.89, 5.16, 6.09),
}
FPR95 = {key: dict(zip(_KINDS, row, strict=True)) for key, row in _TABLE_1.items()}

# Table 2 and the bars of the last two figures: mAP (%) of retrieval, matching, verification.
# First trained on Phototourism (Liberty), or not at all; then trained on HPatches.
HPATCHES = {
    "concat": (45.23, 29.68, 77.78),
    "concat+wua": (52.78, 36.46, 77.31),
    "concat+wus": (53.50, 37.16, 78.81),
    "concat+ws": (49.66, 32.58, 75.82),
    "sift": (43.0, 25.8, 64.4),
    "rootsift": (43.3, 27.2, 57.2),
    "tfeat": (52.4, 32.8, 81.4),
    "hardnet": (70.3, 53.2, 88.1),
}
HPATCHES_TRAINED = {
    "concat+wua": (56.36, 39.88, 80.06),
    "concat+wus": (56.71, 40.13, 80.70),
    "concat+ws": (61.79, 44.40, 83.50),
    "sift+ws": (50.5, 32.1, 76.4),
    "rootsift+ws": (54.9, 37.9, 77.7),
    "tfeat+ws": (55.4, 35.7, 83.0),
    "hardnet+ws": (72.3, 55.1, 88.8),
}

# FPR95 (%) on Phototourism over t (W_UA) and over i, beta = lam_i (W_US): trained on Phototourism,
# and on HPatches.
FPR95_OVER_T = {
    0.0: (15.85, 16.57), 0.1: (13.55, 14.29), 0.2: (11.45, 12.31), 0.3: (9.67, 10.63),
    0.4: (8.27, 9.14), 0.5: (7.29, 8.12), 0.6: (6.78, 7.61), 0.7: (6.79, 7.75), 0.8: (7.29, 8.65),
    0.9: (8.58, 10.35), 1.0: (10.86, 13.23),
}  # fmt: skip
FPR95_OVER_BETA = {
    1: (12.07, 12.83), 5: (9.01, 10.02), 10: (8.03, 9.16), 20: (7.35, 8.11), 30: (7.21, 7.90),
    40: (7.22, 7.90), 50: (7.23, 8.07), 60: (7.37, 8.32), 70: (7.47, 8.61), 80: (7.72, 9.15),
    90: (8.05, 9.54), 100: (8.40, 10.16),
}  # fmt: skip

# Eigenvalues of the combined descriptor, the largest being 1, by their index from 1.
EIGENVALUES = {
    1: 1.0, 2: 0.7098, 3: 0.3573, 5: 0.2205, 10: 0.1021, 20: 0.04499, 30: 0.02463, 40: 0.01533,
    50: 0.00998, 60: 0.00719, 70: 0.00500, 80: 0.00308, 90: 0.00202, 100: 0.00122,
}  # fmt: skip
