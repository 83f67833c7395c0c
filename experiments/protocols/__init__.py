"""Measure descriptors: one protocol a file, each a function of candidates that gives their scores.

`candidates`  what is compared: KD with any settings, SIFT, RootSIFT, the descriptors of Kornia; any
              of them followed by a W_S that is fitted on its own rows
`patches`     labelled pairs of patches (Phototourism): FPR95
`hpatches`    verification, matching and retrieval on `strips` of patches, by `tasks` (HPatches)
`pairs`       what the next three share: pairs of images, how they are matched and scored
`images`      image matching: average precision, precision, error of the homography
`pose`        relative pose of photographs with known `cameras`
`pipelines`   whole pipelines, detector included: homography and pose, beside their time
`curves`      FPR95 over the shrinkage of a whitening, over a turn or a shift of one patch
`readers`     folders and built-in photographs in the form that the protocols take
`scores`      what a protocol gives, and how sure it is
`metrics`     pure functions of arrays; `cache` stores rows, so that they are described once
"""

__all__: list[str] = []
