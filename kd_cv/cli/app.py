"""The commands of `kd-cv`. Each imports what it needs when it runs."""

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, get_args

import typer

from kd_cv.cli.evaluate import app as evaluate
from kd_cv.cli.options import (
    Compare,
    Descriptor,
    Detector,
    Dim,
    Figure,
    Images,
    Json,
    Magnification,
    MaxKeypoints,
    MaxSize,
    Overwrite,
    Photos,
    Ratio,
    Root,
    Scheduler,
    Weights,
    Workers,
)
from kd_cv.descriptor.frames import MAGNIFICATION
from kd_cv.io.files import printable
from kd_cv.matching import RATIO

app = typer.Typer(
    name="kd-cv",
    help="Kernel local descriptors: match photographs, and see why they match.",
    epilog="Try it: kd-cv match -o matches.png",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
app.add_typer(evaluate, name="eval")
#: What typer raises for a command line that it cannot read.
usage_error: Any = typer.BadParameter.__base__


@app.callback()
def _app(
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error; anywhere on the line.")
    ] = False,
) -> None:
    """Kernel local descriptors: match photographs, and see why they match.

    Exit codes: 0 done, 1 nothing found, 2 bad input, 3 an error of kd_cv itself.
    """


@app.command()
def match(
    photos: Photos = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Draw the matches: .png, .jpg, ...")
    ] = None,
    report: Annotated[
        Path | None, typer.Option(help="Write one HTML page to explore the matches in.")
    ] = None,
    save_homography: Annotated[
        Path | None, typer.Option(help="Write H_0to1: .txt, .npy or .json.")
    ] = None,
    descriptor: Descriptor = "kd",
    compare: Compare = False,
    detector: Detector = "sift",
    weights: Weights = None,
    ratio: Ratio = RATIO,
    threshold: Annotated[float, typer.Option(help="Of inliers, in pixels of B.")] = 3.0,
    max_keypoints: MaxKeypoints = 5000,
    as_json: Json = False,
) -> None:
    """Match two photographs and find the homography between them.

    Without photographs it shows itself on a built-in one and its turned, dark, noisy copy.

    [bold]Examples[/bold]

        kd-cv match -o matches.png

        kd-cv match left.jpg right.jpg -o matches.png --save-homography H.txt

        kd-cv match left.jpg right.jpg --compare -o compared.png

        kd-cv match left.jpg right.jpg --report report.html

        kd-cv match left.jpg right.jpg --json | jq .inliers

    The exit code is 1, with the picture drawn, if no homography can be believed:
    fewer than 4 matches, or no more inliers than chance gives.
    With --compare, the one of --descriptor decides.
    """
    from kd_cv.cli.match import match_command
    from kd_cv.cli.matcher import Options

    options = Options(detector, ratio, threshold, max_keypoints, weights)
    raise typer.Exit(
        match_command(
            photos or (), output, report, save_homography, descriptor, compare, options, as_json
        )
    )


@app.command()
def explain(
    photos: Photos = None,
    output: Figure = None,
    number: Annotated[
        int, typer.Option("--match", help="Which inlier; 0 is the most certain.")
    ] = 0,
    at: Annotated[
        tuple[float, float] | None,
        typer.Option(help="Count from the inlier nearest to this point of A.", metavar="X Y"),
    ] = None,
    weights: Weights = None,
    as_json: Json = False,
) -> None:
    """Explain a match: which pixels made the two patches alike.

    The sum over a heat map is the similarity of the two descriptors.

    [bold]Examples[/bold]

        kd-cv explain -o explanation.png

        kd-cv explain left.jpg right.jpg --match 3 -o explanation.png

        kd-cv explain left.jpg right.jpg --at 420 180 -o explanation.png
    """
    from kd_cv.cli.explain import explain_command
    from kd_cv.cli.matcher import Options

    options = Options(weights=weights)
    raise typer.Exit(explain_command(photos or (), output, number, at, options, as_json))


@app.command()
def figures(
    names: Annotated[
        list[str] | None, typer.Argument(help="Which; all if none is given.", metavar="[NAME]...")
    ] = None,
    output: Annotated[
        Path, typer.Option("-o", "--output", help="Folder for NAME.png; made if need be.")
    ] = Path("figures"),
    patch_size: Annotated[int, typer.Option(help="Of the patches and maps.")] = 64,
    weights: Weights = None,
) -> None:
    """Draw the paper's figures with the descriptor's own constants.

    kernels, parametrizations, rotation, combination, whitening, slices,
    heat_maps, histograms, eigenvalues, robustness

    [bold]Examples[/bold]

        kd-cv figures

        kd-cv figures kernels heat_maps -o pictures
    """
    import matplotlib
    from rich.console import Console

    matplotlib.use("Agg")
    from kd_cv.paper.figures import Material, check_names, save_figures

    chosen = check_names(names or ())
    with Console(stderr=True).status("Drawing ...") as status:

        def done(name: str, path: Path) -> None:
            print(path)
            status.update(f"{chosen.index(name) + 1} of {len(chosen)} figures drawn ...")

        save_figures(chosen, output, Material(patch_size, weights), done)


@app.command()
def extract(
    images: Images,
    output: Annotated[Path, typer.Option("-o", "--output", help="An HDF5 file.")],
    descriptor: Descriptor = "kd",
    weights: Weights = None,
    max_keypoints: MaxKeypoints = 8192,
    max_size: MaxSize = 3200,
    dtype: Annotated[str, typer.Option(help="float16, float32, or uint8 for kd.")] = "float16",
    workers: Workers = None,
    scheduler: Scheduler = None,
    root: Root = None,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Extract the features of a whole collection into one file that hloc reads.

    A run that was stopped goes on where it was. The exit code is 1 if images were skipped.

    [bold]Examples[/bold]

        kd-cv extract photographs -o features.h5

        kd-cv extract "photographs/*.jpg" -o features.h5 --dtype uint8

        kd-cv extract list.txt -o features.h5 --root /photographs --scheduler tcp://host:8786
    """
    from kd_cv.collection.extract import extract as run

    extraction = _extraction(descriptor, weights, max_keypoints, max_size, dtype)
    options: dict[str, Any] = {"root": root, "overwrite": overwrite, "progress": not as_json}
    if scheduler is None:
        summary = run(images, output, extraction, workers=workers, **options)
    else:
        from kd_cv.collection.cluster import connected
        from kd_cv.collection.cluster import extract as run_on_cluster

        with connected(scheduler, workers) as client:
            summary = run_on_cluster(images, output, extraction, client=client, **options)
    print(json.dumps(asdict(summary), default=str) if as_json else summary)
    raise typer.Exit(summary.exit_code)


def _extraction(descriptor: str, weights: str | None, *settings: Any) -> Any:
    """What --descriptor and --weights name, with the other settings of an Extraction."""
    from kd_cv.cli.matcher import make_feature
    from kd_cv.collection.extract import Extraction

    return Extraction(make_feature(descriptor, weights) if weights else descriptor, *settings)


@app.command()
def colmap(
    images: Images,
    workspace: Annotated[
        Path,
        typer.Option(
            "-o", "--workspace", "--output", help="Folder for features, database and model."
        ),
    ],
    descriptor: Descriptor = "kd",
    compare: Compare = False,
    weights: Weights = None,
    max_keypoints: MaxKeypoints = 8192,
    max_size: MaxSize = 3200,
    matcher: Annotated[str, typer.Option(help="kd, or colmap for COLMAP's own.")] = "kd",
    ratio: Ratio = RATIO,
    pairs: Annotated[
        Path | None, typer.Option(help="File of pairs of names, two a line; all by default.")
    ] = None,
    camera: Annotated[
        str, typer.Option(help="Who shares a lens: auto, single, per-folder or per-image.")
    ] = "auto",
    threads: Annotated[
        int | None, typer.Option(help="Of the extraction and of COLMAP; one a core by default.")
    ] = None,
    root: Root = None,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Reconstruct a scene with COLMAP from these descriptors.

    [bold]Examples[/bold]

        kd-cv colmap photographs --workspace scene

        kd-cv colmap photographs --workspace scene --compare
    """
    from kd_cv.collection.colmap import Matcher, reconstruct, table
    from kd_cv.collection.colmap import compare as run_all
    from kd_cv.collection.extract import Collection

    if matcher not in get_args(Matcher):
        raise ValueError(f"--matcher must be one of {get_args(Matcher)}, got {matcher!r}")
    names = ("kd", "rootsift", "sift") if compare else (descriptor,)
    extractions = [
        _extraction(name, weights if name == "kd" or not compare else None, max_keypoints, max_size)
        for name in names
    ]
    options: dict[str, Any] = {
        "matcher": matcher, "ratio": ratio, "pairs": pairs, "camera": camera, "threads": threads,
        "overwrite": overwrite, "progress": not as_json,
    }  # fmt: skip
    collection = Collection.of(images, root)
    if compare:
        rows = run_all(collection, workspace, extractions, **options)
    else:
        rows = [reconstruct(collection, workspace, extractions[0], **options)]
    if as_json:  # which knows no NaN
        found = [{k: None if v != v else v for k, v in asdict(row).items()} for row in rows]
        print(json.dumps(found))
    else:
        print(table(rows))
    for name, reason in rows[0].skipped.items():
        print(printable(f"skipped {name}: {reason}"), file=sys.stderr)
    raise typer.Exit(0 if all(row.registered for row in rows) else 1)


@app.command()
def export(
    output: Annotated[Path, typer.Option("-o", "--output", help="An ONNX file.")],
    image: Annotated[
        bool, typer.Option("--image", help="Take an image and frames instead of patches.")
    ] = False,
    patch_size: Annotated[int, typer.Option(help="Samples per side of a patch.")] = 32,
    kernel: Annotated[str, typer.Option(help="concat, polar or cart.")] = "concat",
    whitening: Annotated[
        str | None, typer.Option(help="ws, wus, wua, w, pcasqrt or none.", show_default=False)
    ] = None,
    weights: Weights = None,
    dim: Dim = 128,
    magnification: Annotated[
        float, typer.Option(help="Side of a patch in keypoint sizes; with --image.")
    ] = MAGNIFICATION,
    scales: Annotated[int, typer.Option(help="Patch sizes to average; with --image.")] = 1,
    as_json: Json = False,
) -> None:
    """Write the descriptor as an ONNX file and check it with onnxruntime.

    It takes patches (B, 1, P, P) in 0..1 and gives descriptors (B, D); with --image
    it takes an image (1, 1, H, W) and frames (N, 4): x, y, size, angle.

    [bold]Examples[/bold]

        kd-cv export -o kd.onnx

        kd-cv export -o kd_image.onnx --image --scales 3
    """
    from rich.console import Console

    from kd_cv.cli.outputs import check_writable
    from kd_cv.nn.export import export_onnx
    from kd_cv.whitening.registry import DEFAULT_WEIGHTS, DEFAULT_WHITENING

    check_writable(output)
    with Console(stderr=True, quiet=as_json).status("Exporting ..."):
        difference = export_onnx(
            output, image=image, magnification=magnification, scales=scales,
            patch_size=patch_size, kernel=kernel, dim=dim, weights=weights or DEFAULT_WEIGHTS,
            whitening=None if whitening == "none" else whitening or DEFAULT_WHITENING,
        )  # fmt: skip
    if as_json:
        print(json.dumps({"output": str(output.resolve()), "difference": difference}))
    else:
        print(f"largest difference to the module: {difference:.2g}")
        print(f"file: {output.resolve()}")


@app.command()
def fit(
    photos: Annotated[Path, typer.Argument(help="A folder of photographs.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="The file of matrices, .npz.")],
    pairs: Annotated[
        str, typer.Option(help="Matching pairs by: warp, sfm (photographs of a place), none.")
    ] = "warp",
    patch_size: Annotated[
        list[int] | None, typer.Option(help="Samples per side, 32 by default; may be repeated.")
    ] = None,
    magnification: Magnification = MAGNIFICATION,
    views: Annotated[int, typer.Option(help="Of each photograph, with its warps.")] = 4,
    max_keypoints: Annotated[int, typer.Option(help="The strongest of each view.")] = 1000,
    workspace: Annotated[
        Path | None, typer.Option(help="Folder in which sfm keeps its work, to go on later.")
    ] = None,
    scheduler: Scheduler = None,
    workers: Annotated[
        int | None, typer.Option(help="Processes of --scheduler local; one a core by default.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Fit whitening matrices on your own photographs, and test them on held-out ones.

    Every fifth photograph is kept from the fit. Without pairs there are W_UA and W_US,
    with them W_S too.

    [bold]Examples[/bold]

        kd-cv fit photographs -o mine.npz

        kd-cv fit photographs -o mine.npz --pairs none --patch-size 32 --patch-size 64

        kd-cv fit /shared/photographs -o mine.npz --scheduler tcp://host:8786

        kd-cv match left.jpg right.jpg --weights mine.npz -o matches.png
    """
    from kd_cv.cli.fit import fit_command

    if pairs not in ("none", "warp", "sfm"):
        raise ValueError(f"--pairs must be none, warp or sfm, got {pairs!r}")
    raise typer.Exit(
        fit_command(
            photos, output, pairs, patch_size or [32], magnification, views,  # type: ignore[arg-type]
            max_keypoints, workspace, scheduler, workers, as_json,
        )
    )  # fmt: skip


@app.command()
def weights(as_json: Json = False) -> None:
    """List the shipped whitening matrices: what they were fitted on, and what they reach.

    [bold]Examples[/bold]

        kd-cv weights

        kd-cv weights --json
    """
    from rich.console import Console
    from rich.table import Table

    from kd_cv.whitening.registry import folder, registry

    entries = registry()
    if as_json:
        print(json.dumps({name: asdict(entry) for name, entry in entries.items()}))
        return
    if not entries:
        raise FileNotFoundError(f"no matrices are shipped: there is no index in {folder()}")
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("name")
    table.add_column("fitted on")
    for title in ("patches", "pairs", "scenes"):
        table.add_column(title, justify="right")
    table.add_column("measured")
    for name, entry in entries.items():
        measured = "\n".join(f"{title} {value:g}" for title, value in entry.figures.items())
        counts = (f"{count:,}" for count in (entry.patches, entry.pairs, entry.scenes))
        table.add_row(name, entry.fitted_on, *counts, measured)
    Console(highlight=False, markup=False).print(table)
