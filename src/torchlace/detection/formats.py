"""Cubes of all formats: .npy, ENVI, .zarr, GeoTIFF; never read whole, never kept mapped."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.format import MAGIC_PREFIX

from torchlace._files import check_header
from torchlace._sklearn import Array
from torchlace.detection.cubes import Cube, Slabs, read_rows

# Bytes that GDAL may keep of what it has read, where it would take a twentieth of all memory.
_GDAL_CACHE = 1 << 26


def open_cube(path: Path | str) -> Cube:
    """A cube by its .npy file, the .hdr of an ENVI image, a .zarr array or a GeoTIFF (.tif, .vrt).

    ENVI needs the package spectral, .zarr needs zarr, GeoTIFF rasterio. Values are those of the
    file, of ENVI and GeoTIFF divided and shifted as their headers say.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if it can't be used; the message says why.
        ImportError: if a package is missing.
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


def _open_npy(path: Path) -> Cube:
    array = map_npy(path)
    shape, dtype, offset = array.shape, array.dtype, array.offset
    fortran = array.flags.f_contiguous and not array.flags.c_contiguous
    stored, axis = (shape[::-1], len(shape) - 1) if fortran else (shape, 0)

    def load(start: int, stop: int) -> Array:
        part = read_rows(path, offset, dtype, stored, axis, start, stop)
        return part.T if fortran else part

    return Cube(path, shape, dtype, load, [path])


def _open_envi(path: Path) -> Cube:
    spectral = _package("spectral", path, "ENVI images need")
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
        part = read_rows(data, offset, dtype, stored, order.index(0), start, stop)
        part = part.transpose(np.argsort(order))
        # Divided by the header's scale factor, so that cube and target share their units.
        values = part.astype(np.float64, order="C")
        values /= scale
        if missing is None or not (empty := _equal(part, missing)).any():
            return values
        values[empty] = np.nan
        return np.ma.array(values, mask=empty)

    return Cube(path, (height, width, bands), np.float64, load, [path, data])


def _open_zarr(path: Path) -> Cube:
    zarr = _package("zarr", path, ".zarr arrays need")
    try:
        array = zarr.open_array(str(path), mode="r")
        step = (getattr(array, "shards", None) or array.chunks)[0]
    except Exception as error:  # zarr raises whatever a broken store leads it to
        raise ValueError(f"{path} is not a readable .zarr array: {error}") from error
    slabs = Slabs(lambda start, stop: np.asarray(array[start:stop]), step, array.shape[0])
    return Cube(path, array.shape, array.dtype, slabs, [path])


def _open_raster(path: Path) -> Cube:
    rasterio = _package("rasterio", path, "GeoTIFF needs")
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
    ".tif": _open_raster,
    ".tiff": _open_raster,
    ".vrt": _open_raster,
}


def _package(name: str, path: Path, why: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise ImportError(f"{path}: {why} pip install {name}") from error


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


def _equal(stored: Array, value: Any) -> Array:
    found: Array = np.isnan(stored) if np.isnan(value) else stored == value
    return found
