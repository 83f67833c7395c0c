"""The images of a collection, and their names in files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from kd_cv.io.files import PathLike, utf8
from kd_cv.io.images import PHOTO_SUFFIXES, by_suffix, find_photos, say_others


@dataclass(frozen=True)
class Collection:
    """Images by their names: paths below a root folder.

    refused  names that cannot be used: name -> reason
    others   files that are not photographs: suffix -> count
    """

    root: Path
    names: tuple[str, ...]
    refused: Mapping[str, str] = field(default_factory=dict)
    others: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, images: PathLike | Collection, root: PathLike | None = None) -> Collection:
        """Find the images of a folder (and below it), of a glob pattern, or of a list file.

        A list file (.txt) has one name a line; empty lines and those that begin with # are
        ignored. Names are relative to `root`; by default to the folder, to that of the list, or
        to the last folder before the first wildcard.
        """
        if isinstance(images, Collection):
            return images
        path = Path(images)
        if path.is_dir():
            base = Path(root or path)
            content = find_photos(path)
            named = {_below(place, base): why for place, why in content.unread.items()}
            names = (_below(photo, base) for photo in content.photos)
            return cls._named(base, names, named, content.others)
        if path.exists():
            if path.suffix.lower() != ".txt":
                raise ValueError(
                    f"{str(path)!r} is one file: expected a folder, a glob pattern or a list (.txt)"
                )
            lines = map(str.strip, path.read_text(encoding="utf-8-sig").splitlines())
            listed = [name_in(line) for line in lines if line and not line.startswith("#")]
            return cls._named(Path(root or path.parent), listed, {}, {})
        wild = [i for i, part in enumerate(path.parts) if any(c in part for c in "*?[")]
        if not wild:
            raise FileNotFoundError(f"no folder, list file or pattern {str(path)!r}")
        fixed = Path(*path.parts[: wild[0]])
        base = Path(root) if root else fixed
        files = [p for p in fixed.glob(str(Path(*path.parts[wild[0] :]))) if p.is_file()]
        photos = [p for p in files if p.suffix.lower() in PHOTO_SUFFIXES]
        others = by_suffix([p for p in files if p.suffix.lower() not in PHOTO_SUFFIXES])
        return cls._named(base, sorted(_below(photo, base) for photo in photos), {}, others)

    @classmethod
    def _named(
        cls, root: Path, names: Iterable[str], refused: Mapping[str, str], others: Mapping[str, int]
    ) -> Collection:
        taken: dict[str, None] = {}
        refused = dict(refused)
        for name in names:
            try:
                taken[name_in(name)] = None
            except ValueError as error:
                refused[name] = str(error)
        if not taken and not refused:
            said = say_others(others)
            raise ValueError(f"no images found in {str(root)!r}" + (f"; {said}" if said else ""))
        return cls(root.absolute(), tuple(taken), refused, others)


def name_in(text: str) -> str:
    """Check a name: a relative path that stays below its root."""
    path = PurePosixPath(text)
    if path.is_absolute() or ".." in path.parts or not path.parts or "\0" in text:
        raise ValueError(f"image name {text!r} must be a path below the folder of the images")
    return utf8(str(path))


def _below(path: Path, base: Path) -> str:
    return path.relative_to(base).as_posix()
