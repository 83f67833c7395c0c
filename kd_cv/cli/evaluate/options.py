"""The options that protocols share, by groups: a command has a parameter for each group."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

from kd_cv.cli.options import Dim, Figure, Json, Magnification, PatchSize, Ratio
from kd_cv.descriptor.frames import MAGNIFICATION
from kd_cv.evaluate.candidates import COMPARED, PATCH_SIZE_OF_SETS
from kd_cv.evaluate.pairs import SEEDS
from kd_cv.neighbours import RATIO


@dataclass(frozen=True)
class Comparison:
    """Which descriptors stand side by side."""

    descriptors: Annotated[
        str,
        typer.Option(
            "--descriptor",
            help="Descriptors, separated by commas: kd, raw (kd without whitening), sift, "
            "rootsift, kornia:CLASS.",
        ),
    ] = ",".join(COMPARED)
    weights: Annotated[
        str | None,
        typer.Option(help="Matrices that whiten kd, separated by commas: shipped names or files."),
    ] = None
    whitening: Annotated[
        str | None,
        typer.Option(
            help="Whitenings of kd, separated by commas: best, wm, ws, wus, wua, w, pcasqrt, none."
        ),
    ] = None
    kernels: Annotated[
        str,
        typer.Option("--kernel", help="Kernels of kd, separated by commas: concat, polar, cart."),
    ] = "concat"
    patch_size: Annotated[
        int | None,
        typer.Option(
            help="Samples per side of kd's patches; by default 32 for images, 64 for ready-made "
            "patches."
        ),
    ] = None
    dim: Dim = 128
    fit_ws: Annotated[
        str | None,
        typer.Option(
            help="Also show each descriptor that is not whitened with a W_S fitted on this: a "
            "folder of photographs or sequences, or builtin."
        ),
    ] = None
    cache: Annotated[
        Path | None, typer.Option(help="Folder that keeps descriptors for the next run.")
    ] = None
    as_json: Json = False

    def candidates(self, **settings: Any) -> list[Any]:
        """What the options name; settings: more of `make_candidates`."""
        from kd_cv.evaluate.candidates import make_candidates
        from kd_cv.whitening.registry import DEFAULT_WEIGHTS, DEFAULT_WHITENING

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

        patches, jitter: those of `whitened.with_ws` and of `scenes_of`.
        """
        if self.fit_ws is None:
            return candidates
        from kd_cv.evaluate.candidates import with_ws as fit
        from kd_cv.evaluate.readers import builtin_scenes, is_phototourism, scenes_of

        source = self.fit_ws
        if source != "builtin" and is_phototourism(source):
            raise ValueError(f"--fit-ws takes photographs or sequences, {source} holds patches")
        builtin = source == "builtin"
        scenes = builtin_scenes(jitter=jitter) if builtin else list(scenes_of(source, jitter))
        shown = []
        for candidate in candidates:
            shown.append(candidate)
            if "+" not in candidate.kind:
                shown.append(fit(candidate, scenes, patches=patches, dim=self.dim))
        return shown


Seeds = Annotated[int, typer.Option(help="How many robust estimates are made for each pair.")]
Against = Annotated[
    str | None, typer.Option(help="Show the gain of the others over this one, on the same pairs.")
]


@dataclass(frozen=True)
class AtKeypoints(Comparison):
    """The same for pairs of images, all descriptors at the same keypoints."""

    magnification: Magnification = MAGNIFICATION
    scales: Annotated[int, typer.Option(help="How many patch sizes kd averages over.")] = 1
    ratio: Ratio = RATIO
    seeds: Seeds = SEEDS
    against: Against = None

    def run(
        self, protocol: Callable[..., Any], material: Any, keypoints: int, threshold: float = 3.0
    ) -> Any:
        """The scores of a protocol."""
        from kd_cv.cli.tables import telling
        from kd_cv.evaluate.cache import Cache
        from kd_cv.evaluate.pairs import Measure

        chosen = self.candidates(magnification=self.magnification, scales=self.scales)
        with telling("Matching", self.as_json) as tell:
            chosen = self.with_ws(chosen)
            measure = Measure(threshold, self.ratio, self.seeds, self._against(chosen), tell)
            return protocol(
                material, chosen, measure, max_keypoints=keypoints, cache=Cache(self.cache)
            )

    def _against(self, candidates: list[Any]) -> str | None:
        """The name of the candidate that --against means by its name or its kind."""
        if self.against is None:
            return None
        for candidate in candidates:
            if self.against.lower() in (candidate.name.lower(), candidate.kind.lower()):
                return str(candidate.name)
        known = ", ".join(candidate.kind for candidate in candidates)
        raise ValueError(
            f"--against {self.against}: none of the descriptors is that; there are {known}"
        )


@dataclass(frozen=True)
class Curve:
    """What a curve is drawn of, and where it goes."""

    data: Annotated[
        Path | None,
        typer.Argument(
            help="Folder of a Phototourism set, of sequences or of photographs; without it, "
            "built-in photographs."
        ),
    ] = None
    weights: Annotated[
        str | None,
        typer.Option(help="Matrices: a shipped name or a file; by default the shipped ones."),
    ] = None
    patch_size: PatchSize = PATCH_SIZE_OF_SETS
    output: Figure = None
    as_json: Json = False

    def whitening(self, kernel: str = "concat") -> tuple[Any, str]:
        """Matrices, and what they are."""
        from kd_cv.descriptor.spec import Spec
        from kd_cv.whitening.registry import DEFAULT_WEIGHTS, resolve

        name, spec = self.weights or DEFAULT_WEIGHTS, Spec(self.patch_size, kernel)
        return resolve(name, kernel, self.patch_size, spec.dim, "patches"), f"whitening: {name}"

    def labelled(self) -> tuple[Any, Any]:
        """Pairs of patches, and the raw descriptors of the patches."""
        from kd_cv.evaluate.candidates import kd_candidate
        from kd_cv.evaluate.readers import labelled_pairs
        from kd_cv.settings import Settings

        pairs = labelled_pairs(self.data, patch_size=max(64, self.patch_size))
        raw = kd_candidate(Settings(self.patch_size, whitening=None))
        return pairs, raw.of_patches(pairs.patches)


def words(text: str) -> list[str]:
    """What stands between commas."""
    return [word.strip() for word in text.split(",") if word.strip()]


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """A command as typer reads it: with the options of a group in place of the group."""
    parameters = inspect.signature(command).parameters
    groups: dict[str, Any] = {
        name: p.annotation for name, p in parameters.items() if is_dataclass(p.annotation)
    }
    options = [p for name, p in parameters.items() if name not in groups]
    # Not by typing.get_type_hints: Python 3.10 adds another | None to what is None by default.
    options += [
        inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY,
            default=field.default, annotation=field.type,
        )
        for kind in groups.values()
        for field in fields(kind)
    ]  # fmt: skip

    @wraps(command)
    def called(**given: Any) -> None:
        made = {
            name: kind(**{field.name: given.pop(field.name) for field in fields(kind)})
            for name, kind in groups.items()
        }
        command(**made, **given)

    called.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
    called.__annotations__ = {}
    return called
