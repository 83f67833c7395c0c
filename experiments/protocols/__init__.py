"""Measure descriptors: each protocol is a function of candidates that returns their scores.

`candidates`  KD with any settings, SIFT, RootSIFT, the descriptors of Kornia; any of them followed
              by a W_S fitted on its own descriptors
`patch_sets`  labelled patches; `verification`: FPR95 (Phototourism)
`hpatches`    verification, matching and retrieval on `strips` of patches, by `tasks` (HPatches)
`pairs`       pairs of images, matched and scored; used by the next three
`matching`    image matching: average precision, precision, error of the homography
`pose`        relative pose of photographs with known `cameras`
`pipelines`   whole pipelines with their detector: homography and pose, and time
`patch_curves`  FPR95 over the shrinkage of a whitening, over a rotation or a shift of one patch
`readers`     folders and built-in photographs
`scores`      results of a protocol, with intervals
`metrics`     functions of arrays; `cache` stores descriptors
"""

__all__: list[str] = []
