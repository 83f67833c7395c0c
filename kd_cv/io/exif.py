"""The focal length that a camera wrote into its photograph (EXIF, in JPEG and TIFF files).

EXIF is a TIFF: a header with the byte order, then directories of 12-byte entries (tag, type, count,
value or its offset). Nothing in it is believed: what does not fit is not there.
"""

import struct

FIRST_DIRECTORY, EXIF_DIRECTORY = 4, 0x8769
FOCAL_LENGTH = 0x920A  # in mm
FOCAL_LENGTH_35MM = 0xA405  # in mm, of the camera with film of 36 mm that sees the same
PIXEL_WIDTH, PLANE_RESOLUTION, PLANE_UNIT = 0xA002, 0xA20E, 0xA210  # of the sensor
UNITS_MM = {2: 25.4, 3: 10.0, 4: 1.0}
FILM_MM = 36.0
MAX_ENTRIES = 1000
IMAGE_WIDTH, IMAGE_HEIGHT = 0x100, 0x101
SHORT, LONG, RATIONAL = 3, 4, 5


def focal_in_widths(data: bytes) -> float | None:
    """Focal length in longer sides of the photograph, if the bytes of its file say it, or None."""
    tags = _tags(data)
    film = tags.get(FOCAL_LENGTH_35MM, 0.0)
    if 1 <= film <= 10_000:
        return film / FILM_MM
    per_mm = tags.get(PLANE_RESOLUTION, 0.0) / UNITS_MM.get(int(tags.get(PLANE_UNIT, 2)), 25.4)
    focal, width = tags.get(FOCAL_LENGTH, 0.0) * per_mm, tags.get(PIXEL_WIDTH, 0.0)
    if width > 0 and 0.01 <= focal / width <= 1000:
        return focal / width
    return None


def tiff_size(data: bytes) -> tuple[int, int] | None:
    """(width, height) of the first page of a TIFF file; None if it does not say."""
    order = "<" if data[:2] == b"II" else ">"
    tags = _directory(data, FIRST_DIRECTORY, order)
    if IMAGE_WIDTH not in tags or IMAGE_HEIGHT not in tags:
        return None
    return int(tags[IMAGE_WIDTH]), int(tags[IMAGE_HEIGHT])


def _tags(data: bytes) -> dict[int, float]:
    """The numbers of the first directory and of EXIF's own."""
    start = data.find(b"Exif\0\0") + 6 if data[:2] == b"\xff\xd8" else 0
    order = {b"II*\0": "<", b"MM\0*": ">"}.get(data[start : start + 4])
    if order is None or (data[:2] == b"\xff\xd8" and start == 5):
        return {}
    exif = data[start:]
    tags = _directory(exif, FIRST_DIRECTORY, order)
    if EXIF_DIRECTORY in tags:
        tags |= _directory(exif, int(tags[EXIF_DIRECTORY]), order, direct=True)
    return tags


def _directory(exif: bytes, at: int, order: str, direct: bool = False) -> dict[int, float]:
    """The entries of the directory at an offset, or at the offset that stands there."""
    tags: dict[int, float] = {}
    try:
        if not direct:
            (at,) = struct.unpack_from(order + "I", exif, at)
        (count,) = struct.unpack_from(order + "H", exif, at)
        for k in range(min(count, MAX_ENTRIES)):
            tag, kind, values = struct.unpack_from(order + "HHI", exif, at + 2 + 12 * k)
            place = at + 10 + 12 * k
            if values != 1:
                continue
            if kind in (SHORT, LONG):
                (tags[tag],) = struct.unpack_from(order + "HI"[kind == LONG], exif, place)
            elif kind == RATIONAL:
                (place,) = struct.unpack_from(order + "I", exif, place)
                above, below = struct.unpack_from(order + "II", exif, place)
                if below:
                    tags[tag] = above / below
    except struct.error:  # an offset behind the end
        pass
    return tags
