"""The options that protocols share: which descriptors are compared."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from kd_cv.cli.options import Dim, Json
from kd_cv.evaluate.candidates import COMPARED, make_candidates, with_ws
from kd_cv.evaluate.readers import builtin_scenes, is_phototourism, scenes_of
from kd_cv.whitening.registry import DEFAULT_WEIGHTS, DEFAULT_WHITENING


@dataclass(frozen=True)
class Comparison:
    """Which descriptors stand side by side."""

    descriptors: Annotated[
        str,
        "Descriptors, separated by commas: kd, raw (kd without whitening), sift, "
        "rootsift, kornia:CLASS.",
        "--descriptor",
    ] = ",".join(COMPARED)
    weights: Annotated[
        str | None, "Matrices that whiten kd, separated by commas: shipped names or files."
    ] = None
    whitening: Annotated[
        str | None,
        "Whitenings of kd, separated by commas: best, wm, ws, wus, wua, w, pcasqrt, none.",
    ] = None
    kernels: Annotated[
        str, "Kernels of kd, separated by commas: concat, polar, cart.", "--kernel"
    ] = "concat"
    patch_size: Annotated[
        int | None,
        "Samples per side of kd's patches; by default 32 for images, 64 for ready-made patches.",
    ] = None
    dim: Dim = 128
    fit_ws: Annotated[
        str | None,
        "Also show each descriptor that is not whitened with a W_S fitted on this: a "
        "folder of photographs or sequences, or builtin.",
    ] = None
    cache: Annotated[Path | None, "Folder that keeps descriptors for the next run."] = None
    as_json: Json = False

    def candidates(self, **settings: Any) -> list[Any]:
        """What the options name; settings: more of `make_candidates`."""
        variants = words(self.whitening) if self.whitening else [DEFAULT_WHITENING]
        return make_candidates(
            words(self.descriptors),
            weights=words(self.weights or DEFAULT_WEIGHTS),
            whitening=[None if name == "none" else name for name in variants],
            kernels=words(self.kernels),
            patch_size=self.patch_size,
            dim=self.dim,
            **settings,
        )

    def with_ws(
        self, candidates: list[Any], patches: tuple[int, float] | None = None, jitter: Any = None
    ) -> list[Any]:
        """With --fit-ws, each candidate that is not whitened followed by itself with W_S.

        patches, jitter: those of `candidates.with_ws` and of `scenes_of`.
        """
        if self.fit_ws is None:
            return candidates
        if self.fit_ws == "builtin":
            scenes = builtin_scenes(jitter=jitter)
        elif is_phototourism(self.fit_ws):
            raise ValueError(
                f"--fit-ws takes photographs or sequences, {self.fit_ws} holds patches"
            )
        else:
            scenes = list(scenes_of(self.fit_ws, jitter))
        shown = []
        for candidate in candidates:
            shown.append(candidate)
            if "+" not in candidate.kind:
                shown.append(with_ws(candidate, scenes, patches=patches, dim=self.dim))
        return shown


def words(text: str) -> list[str]:
    """What stands between commas."""
    return [word.strip() for word in text.split(",") if word.strip()]
