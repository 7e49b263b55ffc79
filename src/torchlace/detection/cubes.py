"""Cubes in files: .npy, ENVI, .zarr, GeoTIFF; read by rows, never whole, never kept mapped."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.format import MAGIC_PREFIX

from torchlace._files import check_header
from torchlace._registry import required
from torchlace._sklearn import Array

# Bytes that GDAL may keep of what it has read, where it would take a twentieth of all memory.
_GDAL_CACHE = 1 << 26


def open_cube(path: Path | str) -> Cube:
    """A cube by its .npy file, the .hdr of an ENVI image, a .zarr array or a GeoTIFF (.tif, .vrt).

    ENVI needs the package spectral, .zarr needs zarr, GeoTIFF rasterio. Values are those of the
    file, of ENVI and GeoTIFF divided and shifted as their headers say.
    """
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"there is no file {path}")
    suffix = path.suffix.lower()
    if suffix not in _KINDS:
        raise ValueError(
            f"{path}: a cube is a .npy array, the .hdr of an ENVI image, a .zarr array or a "
            "GeoTIFF (.tif, .vrt)"
        )
    return _KINDS[suffix](path)


def map_npy(path: Path) -> Any:
    """The array of a .npy file, mapped into memory."""
    with path.open("rb") as file:
        start = file.read(len(MAGIC_PREFIX))
    if start != MAGIC_PREFIX:
        raise ValueError(
            f"{path} is not a readable .npy array: it does not begin as one does, so it holds text "
            "or something else; write arrays with numpy.save"
        )
    try:
        with path.open("rb") as file:
            check_header(file, path.stat().st_size, "it")
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except Exception as error:  # numpy raises whatever a broken header leads it to
        raise ValueError(f"{path} is not a readable .npy array ({error})") from error


class Cube:
    """An image (H, W, bands), or pixels (N, bands), in a file: ``cube[first:last]`` reads rows.

    Pixels that are NaN in every band, or that the file marks as without data in any, are masked.

    Args:
        path: of the file.
        shape: of the image.
        dtype: of what is read.
        load: reads the rows from a first to before a last.
        files: all that the image is made of.

    Example:
        >>> import tempfile
        >>> from torchlace.detection import open_cube
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     np.save(f"{folder}/cube.npy", np.arange(24).reshape(4, 3, 2))
        ...     cube = open_cube(f"{folder}/cube.npy")
        ...     cube.shape, cube[2:3].tolist(), cube.keep(np.array([1]))[3:].tolist()
        ((4, 3, 2), [[[12, 13], [14, 15], [16, 17]]], [[[19], [21], [23]]])
    """

    def __init__(
        self,
        path: Path,
        shape: tuple[int, ...],
        dtype: Any,
        load: Callable[[int, int], Array],
        files: list[Path],
    ) -> None:
        self.path, self.shape, self.dtype, self.files = path, shape, np.dtype(dtype), files
        self._load = load
        self._bands: Any = None
        if len(shape) not in (2, 3) or self.dtype.kind not in "iuf" or not math.prod(shape):
            raise ValueError(
                f"{path}: a cube is an array of real numbers of shape (H, W, bands) or (N, bands), "
                f"got {self.dtype} {shape}"
            )

    def __getitem__(self, rows: slice) -> Array:
        start, stop, _ = rows.indices(self.shape[0])
        part = self._load(start, max(start, stop))
        return _mask_empty(part if self._bands is None else part[..., self._bands])

    def keep(self, bands: Array) -> Cube:
        """The same cube with some of its bands only."""
        shape = (*self.shape[:-1], len(bands))
        chosen = Cube(self.path, shape, self.dtype, self._load, self.files)
        chosen._bands = bands if self._bands is None else self._bands[bands]
        return chosen

    def identity(self) -> list[list[Any]]:
        """Name, size and time of change of its files, which tell whether it is still the same."""
        inside = [
            [path] if path.is_file() else sorted(filter(Path.is_file, path.rglob("*")))
            for path in self.files
        ]
        facts = [(path, path.stat()) for paths in inside for path in paths]
        return [[path.name, stat.st_size, stat.st_mtime_ns] for path, stat in facts]


def _open_npy(path: Path) -> Cube:
    array = map_npy(path)
    shape, dtype, offset = array.shape, array.dtype, array.offset
    fortran = array.flags.f_contiguous and not array.flags.c_contiguous
    stored, axis = (shape[::-1], len(shape) - 1) if fortran else (shape, 0)

    def load(start: int, stop: int) -> Array:
        part = _read_rows(path, offset, dtype, stored, axis, start, stop)
        return part.T if fortran else part

    return Cube(path, shape, dtype, load, [path])


def _open_envi(path: Path) -> Cube:
    spectral = required("spectral", f"{path}: ENVI images need pip install spectral")
    try:
        image = spectral.open_image(str(path))
        if not hasattr(image, "load"):
            raise ValueError("it is a spectral library; targets come as .csv or .npy")
        height, width, bands = image.shape
        data, offset, scale = Path(image.filename), image.offset, image.scale_factor
        dtype = np.dtype(image.dtype).newbyteorder(">" if image.byte_order else "<")
        kind = image.interleave
        _check_envi(image, data)
        ignored = image.metadata.get("data ignore value")
        missing = None if ignored is None else _as_stored(ignored, dtype)
        del image  # it maps its file
    except Exception as error:  # spectral raises whatever a broken header leads it to
        reason = f"unknown value {error}" if isinstance(error, KeyError) else str(error)
        raise ValueError(f"{path} is not a readable ENVI image: {reason}") from error
    # The order of the axes in the file, of rows, columns and bands.
    orders = {spectral.BIL: (0, 2, 1), spectral.BIP: (0, 1, 2), spectral.BSQ: (2, 0, 1)}
    order = orders[kind]
    stored = tuple((height, width, bands)[axis] for axis in order)

    def load(start: int, stop: int) -> Array:
        part = _read_rows(data, offset, dtype, stored, order.index(0), start, stop)
        part = part.transpose(np.argsort(order))
        # Divided by the header's scale factor, so that cube and target share their units.
        values = part.astype(np.float64, order="C")
        values /= scale
        if missing is None:
            return values
        empty = np.isnan(part) if np.isnan(missing) else part == missing
        if not empty.any():
            return values
        values[empty] = np.nan
        return np.ma.array(values, mask=empty)

    return Cube(path, (height, width, bands), np.float64, load, [path, data])


def _open_zarr(path: Path) -> Cube:
    zarr = required("zarr", f"{path}: .zarr arrays need pip install zarr")
    try:
        array = zarr.open_array(str(path), mode="r")
        step = (getattr(array, "shards", None) or array.chunks)[0]
    except Exception as error:  # zarr raises whatever a broken store leads it to
        raise ValueError(f"{path} is not a readable .zarr array: {error}") from error
    slabs = Slabs(lambda start, stop: np.asarray(array[start:stop]), step, array.shape[0])
    return Cube(path, array.shape, array.dtype, slabs, [path])


def _open_raster(path: Path) -> Cube:
    rasterio = required("rasterio", f"{path}: GeoTIFF needs pip install rasterio")
    try:
        with rasterio.open(path) as image:
            shape = (image.height, image.width, image.count)
            step, dtypes = image.block_shapes[0][0], image.dtypes
            scales, offsets = np.array(image.scales), np.array(image.offsets)
            files = [Path(name) for name in image.files if Path(name).exists()]
    except rasterio.errors.RasterioError as error:
        raise ValueError(f"{path} is not a readable image: {error}") from error
    plain = (scales == 1).all() and (offsets == 0).all()

    def load(start: int, stop: int) -> Array:
        window = rasterio.windows.Window(0, start, shape[1], stop - start)
        try:
            with rasterio.Env(GDAL_CACHEMAX=_GDAL_CACHE), rasterio.open(path) as image:
                stored = image.read(window=window, masked=True).transpose(1, 2, 0)
        except rasterio.errors.RasterioError as error:
            raise ValueError(f"{path} could not be read, rows {start} to {stop}: {error}") from None
        values = stored.data if plain else stored.data * scales + offsets
        mask = np.ma.getmaskarray(stored)
        return np.ma.array(values, mask=mask) if mask.any() else values

    dtype = np.result_type(*dtypes) if plain else np.float64
    return Cube(path, shape, dtype, Slabs(load, step, shape[0]), files or [path])


_KINDS: dict[str, Callable[[Path], Cube]] = {
    ".npy": _open_npy,
    ".hdr": _open_envi,
    ".zarr": _open_zarr,
    **dict.fromkeys((".tif", ".tiff", ".vrt"), _open_raster),
}


def _check_envi(image: Any, data: Path) -> None:
    """Raise where a header promises more than its file holds."""
    promised, held = image.offset + math.prod(image.shape) * image.sample_size, data.stat().st_size
    if min(image.shape) < 1 or held < promised:
        shape = " × ".join(map(str, image.shape))
        raise ValueError(f"{shape} values are {promised:,} bytes, {data} has {held:,}")
    if not math.isfinite(image.scale_factor) or not image.scale_factor:
        raise ValueError(f"its scale factor is {image.scale_factor}")


def _as_stored(text: str, dtype: np.dtype[Any]) -> Any:
    """A header's number, rounded as pixels of this type are; None if they can't hold it."""
    value = float(text)
    if dtype.kind not in "iu":
        with np.errstate(over="ignore"):
            return dtype.type(value)
    limits = np.iinfo(dtype)
    if not value.is_integer() or not limits.min <= (number := int(Decimal(text))) <= limits.max:
        return None
    return dtype.type(number)


class Slabs:
    """Reads rows where only whole chunks of them can be decompressed, each chunk once."""

    def __init__(self, load: Callable[[int, int], Array], step: int, height: int) -> None:
        self.load, self.step, self.height = load, step, height
        self.first, self.held = -1, np.empty(0)

    def __call__(self, start: int, stop: int) -> Array:
        """The rows from a first to before a last."""
        parts = []
        while start < stop:
            first = start // self.step * self.step
            if first != self.first:
                self.held = np.empty(0)
                self.held = self.load(first, min(first + self.step, self.height))
                self.first = first
            last = min(stop, first + self.step)
            parts.append(self.held[start - first : last - first])
            start = last
        if any(map(np.ma.isMaskedArray, parts)):
            whole: Array = np.ma.concatenate(parts)  # type: ignore[no-untyped-call]
            return whole
        return np.concatenate(parts)


def _read_rows(
    path: Path,
    offset: int,
    dtype: np.dtype[Any],
    shape: tuple[int, ...],
    axis: int,
    start: int,
    stop: int,
) -> Array:
    """Some positions of one axis of an array that a file holds in C order from ``offset`` on."""
    outer, inner = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
    part = np.empty((outer, (stop - start) * inner), dtype)
    with path.open("rb") as file:
        for number, run in enumerate(part):
            file.seek(offset + (number * shape[axis] + start) * inner * dtype.itemsize)
            if file.readinto(run.view(np.uint8).data) < run.nbytes:
                raise ValueError(
                    f"{path} ends within rows {start} to {stop - 1}: it was cut short while it was "
                    "read"
                )
    return part.reshape(*shape[:axis], stop - start, *shape[axis + 1 :])


def _mask_empty(part: Array) -> Array:
    """Mask the pixels that are NaN in every band too."""
    values, mask = np.ma.getdata(part), np.ma.getmask(part)
    empty: Any = np.isnan(values[..., 0])
    if empty.any():
        empty = np.isnan(values).all(axis=-1)
    if not empty.any():
        return part
    return np.ma.array(values, mask=np.broadcast_to(mask | empty[..., None], values.shape))
