"""Structure from motion: a reconstruction by pycolmap, and point maps by the surface it found."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from kd_cv.collection.colmap import largest_model, quiet
from kd_cv.collection.database import load_pycolmap
from kd_cv.descriptor.frames import from_corner, to_corner
from kd_cv.fit.warps import PointMap
from kd_cv.io.files import digest, read_bytes
from kd_cv.io.images import MAX_IMAGE_BYTES
from kd_cv.types import Float64

MAX_IMAGE_SIZE, MAX_FEATURES = 1280, 4096  # of a photograph that is reconstructed from
NEIGHBOURS = 12  # reconstructed points that a plane is fitted to
SUPPORT = 3  # of these that the other view has seen, at least
MAX_ERROR = 1.5  # pixels
MIN_SHARED = 15  # points that two views have in common, to be linked


class Camera(NamedTuple):
    """A registered view: pixels <-> rays of its camera, its pose, and the points it sees.

    x_cam = R X + t. points: (M, 3) in the world, as seen by this view. Pixels are OpenCV's.
    """

    shape: tuple[int, int]
    rays_from_pixels: Callable[[Float64], Float64]  # (N, 2) -> (N, 2), z = 1
    pixels_from_rays: Callable[[Float64], Float64]
    R: Float64
    t: Float64
    points: Float64
    point3d_ids: NDArray[np.int64]


class SurfaceMap:
    """Point maps between registered views, by the surface that the reconstructed points lie on.

    About a pixel of a view the surface is taken for a plane through the nearest reconstructed
    points. A plane is linear in inverse depth over the rays: 1/z = a + b u + c v. The plane's
    standard error, carried into the other view, must stay below MAX_ERROR pixels, and SUPPORT of
    the NEIGHBOURS must have been seen in the other view.
    """

    def __init__(self, cameras: Sequence[Camera]):
        self.cameras = cameras
        self._rays, self._inverse_depth, self._trees = [], [], []
        for camera in cameras:
            local = camera.points @ camera.R.T + camera.t
            if (local[:, 2] <= 0).any():
                raise ValueError(
                    "a point lies behind a camera that sees it, as the reconstruction says"
                )
            rays = local[:, :2] / local[:, 2:]
            self._rays.append(rays)
            self._inverse_depth.append(1 / local[:, 2])
            self._trees.append(cKDTree(camera.pixels_from_rays(rays)))

    def view_pairs(self) -> list[tuple[int, int]]:
        """Pairs i < j of views that see MIN_SHARED points in common."""
        ids = [camera.point3d_ids for camera in self.cameras]
        return [
            (i, j)
            for i, j in itertools.combinations(range(len(ids)), 2)
            if len(np.intersect1d(ids[i], ids[j])) >= MIN_SHARED
        ]

    def plane(self, view: int, xy: Float64) -> tuple[Float64, Float64, NDArray[np.int64]]:
        """The planes at pixels (N, 2) of a view: (N, 3), the a, b, c of 1/z counted from each ray.

        Also their standard errors (N,), and the neighbours (N, k) that they were fitted to, as rows
        of the camera's points.
        """
        k = NEIGHBOURS
        if len(self._rays[view]) < k:
            none = np.full((len(xy), 3), np.nan)
            return none, none[:, 0], np.empty((len(xy), 0), np.int64)
        camera = self.cameras[view]
        distance, near = self._trees[view].query(xy, k=k)
        offset = self._rays[view][near] - camera.rays_from_pixels(xy)[:, None]  # n k 2
        scale = np.abs(offset).max(axis=(1, 2), keepdims=True) + 1e-12
        basis = np.concatenate([np.ones((len(xy), k, 1)), offset / scale], axis=2)  # n k 3
        value = self._inverse_depth[view][near]  # n k
        # Reweighted least squares: a neighbour off the plane counts little (Cauchy weights).
        weight = np.ones_like(value)
        for _ in range(6):
            normal = np.einsum("nki,nk,nkj->nij", basis, weight, basis)
            normal += 1e-9 * np.eye(3)  # neighbours on one line: the error below grows instead
            inverse = np.linalg.inv(normal)
            plane = np.einsum("nij,nkj,nk,nk->ni", inverse, basis, weight, value)
            residual = value - np.einsum("nki,ni->nk", basis, plane)
            spread = np.median(np.abs(residual), axis=1, keepdims=True) / 0.6745
            floor = 1e-6 * np.abs(value).mean(axis=1, keepdims=True)
            weight = 1 / (1 + (residual / (2 * np.maximum(spread, floor))) ** 2)
        variance = (weight * residual**2).sum(axis=1) / np.maximum(weight.sum(axis=1) - 3, 1)
        # The error of a prediction at the pixel itself: scatter about the plane and leverage.
        error = np.sqrt(variance * (1 + inverse[:, 0, 0]))
        error[distance[:, -1] > 0.1 * np.hypot(*camera.shape)] = np.nan  # too far to tell
        plane[:, 1:] /= scale[:, 0]
        return plane, error, near

    def point_map(self, i: int, j: int) -> PointMap:
        """From view i to view j."""
        source, target = self.cameras[i], self.cameras[j]
        R = target.R @ source.R.T
        t = target.t - R @ source.t
        shared = np.isin(source.point3d_ids, target.point3d_ids)

        def project(rays: Float64, inverse_depth: Float64) -> Float64:
            # x_j ~ R (u, v, 1) + t / z
            local = np.concatenate([rays, np.ones((len(rays), 1))], axis=1) @ R.T
            local += inverse_depth[:, None] * t
            z = np.where((inverse_depth > 0) & (local[:, 2] > 1e-9), local[:, 2], np.nan)
            return target.pixels_from_rays(local[:, :2] / z[:, None])

        def point_map(xy: Float64) -> tuple[Float64, Float64]:
            plane, error, near = self.plane(i, xy)
            rays = source.rays_from_pixels(xy)
            mapped = project(rays, plane[:, 0])
            moved = np.linalg.norm(project(rays, plane[:, 0] + error) - mapped, axis=1)
            supported = shared[near].sum(axis=1) >= SUPPORT
            mapped[~((moved <= MAX_ERROR) & supported)] = np.nan

            def beside(step: Float64) -> Float64:
                rays_there = source.rays_from_pixels(xy + step)
                slope = ((rays_there - rays) * plane[:, 1:]).sum(axis=1)
                return project(rays_there, plane[:, 0] + slope)

            J = np.stack([(beside(step) - beside(-step)) / 2 for step in np.eye(2)], axis=2)
            return mapped, J

        return point_map


def sparse_model(folder: Path, workspace: Path, names: list[str]) -> Any:
    """The largest model of photographs of a folder.

    The workspace keeps the database and the finished model of these very photographs.
    """
    pycolmap = load_pycolmap()
    settings = {
        "images": {name: digest(read_bytes(folder / name, MAX_IMAGE_BYTES), 32) for name in names},
        "max_image_size": MAX_IMAGE_SIZE,
        "max_features": MAX_FEATURES,
    }
    of_settings = digest(json.dumps(settings, sort_keys=True).encode(), 16)
    home = workspace / f"reconstruction-{of_settings}"
    model = home / "model"
    if model.is_dir():
        return pycolmap.Reconstruction(model)
    home.mkdir(parents=True, exist_ok=True)
    database = home / "database.db"
    with quiet():
        pycolmap.set_random_seed(0)
        limits = {"max_image_size": MAX_IMAGE_SIZE, "sift": {"max_num_features": MAX_FEATURES}}
        pycolmap.extract_features(
            database,
            folder,
            image_names=names,
            extraction_options=limits,
            device=pycolmap.Device.cpu,
        )
        pycolmap.match_exhaustive(database, device=pycolmap.Device.cpu)
        best = largest_model(database, folder, model, -1, max_num_models=5, extract_colors=False)
    if best is None:
        raise ValueError(f"{folder}: no reconstruction, the photographs share too few features")
    return best


def registered_views(model: Any, folder: Path) -> tuple[list[Camera], list[Path]]:
    """The registered views of a reconstruction, by name."""
    cameras, paths = [], []
    images = sorted((i for i in model.images.values() if i.has_pose), key=lambda i: i.name)
    for image in images:
        lens = model.cameras[image.camera_id]
        pose = image.cam_from_world().matrix()
        ids = np.array(
            [p.point3D_id for p in image.points2D if p.has_point3D()], dtype=np.uint64
        ).astype(np.int64)
        points = np.array([model.points3D[int(n)].xyz for n in ids]).reshape(-1, 3)
        shape, R, t = (lens.height, lens.width), pose[:, :3], pose[:, 3]
        rays, pixels = rays_from_pixels(lens), pixels_from_rays(lens)
        cameras.append(Camera(shape, rays, pixels, R, t, points, ids))
        paths.append(folder / image.name)
    return cameras, paths


def rays_from_pixels(lens: Any) -> Callable[[Float64], Float64]:
    return lambda xy: np.asarray(lens.cam_from_img(np.ascontiguousarray(to_corner(xy))))


def pixels_from_rays(lens: Any) -> Callable[[Float64], Float64]:
    def pixels(rays: Float64) -> Float64:
        points = np.concatenate([rays, np.ones((len(rays), 1))], axis=1)
        seen = np.isfinite(points).all(axis=1)
        out = np.full((len(rays), 2), np.nan)
        out[seen] = from_corner(np.asarray(lens.img_from_cam(points[seen])))
        return out

    return pixels
