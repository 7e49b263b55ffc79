"""Images to train on.

From a source (:mod:`~torchlace.data.sources`: a name, a pack, a folder or CSV of files)
:func:`load_data` makes :class:`ImageData`: images to train and to test on, in memory or decoded on
demand. Transforms augment and normalise them for the network.
"""

from torchlace.data.check import CheckReport, check_data, contact_sheet
from torchlace.data.decode import (
    BadImage,
    BadImagesError,
    DataError,
    MissingDataError,
    decode_image,
)
from torchlace.data.files import FileImages
from torchlace.data.first import first_classes, whole_source
from torchlace.data.images import (
    ImageData,
    Images,
    MemoryImages,
    image_batches,
    stratified_split,
)
from torchlace.data.importing import fetch_data, import_data
from torchlace.data.listing import image_files
from torchlace.data.load import load_data
from torchlace.data.mixing import Mixing
from torchlace.data.packs import data_root, read_pack, write_pack
from torchlace.data.sources import (
    KNOWN,
    KnownData,
    absolute_source,
    check_source,
    data_names,
    list_data,
    near_sources,
    register,
)
from torchlace.data.transforms import (
    IMAGENET_MEAN,
    IMAGENET_STD,
    PROTOCOLS,
    Augment,
    Prepare,
    channel_statistics,
    protocol_transforms,
)

__all__ = [
    "IMAGENET_MEAN",
    "IMAGENET_STD",
    "KNOWN",
    "PROTOCOLS",
    "Augment",
    "BadImage",
    "BadImagesError",
    "CheckReport",
    "DataError",
    "FileImages",
    "ImageData",
    "Images",
    "KnownData",
    "MemoryImages",
    "MissingDataError",
    "Mixing",
    "Prepare",
    "absolute_source",
    "channel_statistics",
    "check_data",
    "check_source",
    "contact_sheet",
    "data_names",
    "data_root",
    "decode_image",
    "fetch_data",
    "first_classes",
    "image_batches",
    "image_files",
    "import_data",
    "list_data",
    "load_data",
    "near_sources",
    "protocol_transforms",
    "read_pack",
    "register",
    "stratified_split",
    "whole_source",
    "write_pack",
]
