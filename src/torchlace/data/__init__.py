"""Images to train on: sources, packs, splits, augmentation."""

from torchlace.data.augment import (
    IMAGENET_MEAN,
    IMAGENET_STD,
    PROTOCOLS,
    Augment,
    Prepare,
    crop_boxes,
    protocol_transforms,
    random_boxes,
)
from torchlace.data.check import CheckReport, check_data
from torchlace.data.decode import decode_image
from torchlace.data.errors import BadImage, BadImagesError, DataError, MissingDataError
from torchlace.data.fetch import fetch_data
from torchlace.data.files import FileImages
from torchlace.data.images import ImageData, Images, MemoryImages
from torchlace.data.importing import import_data
from torchlace.data.known import KNOWN, KnownData
from torchlace.data.listing import image_files
from torchlace.data.load import absolute_source, load_data, near_sources
from torchlace.data.packs import data_root, read_pack, write_pack
from torchlace.data.sheet import contact_sheet
from torchlace.data.splits import stratified_split
from torchlace.data.statistics import channel_statistics

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
    "Prepare",
    "absolute_source",
    "channel_statistics",
    "check_data",
    "contact_sheet",
    "crop_boxes",
    "data_root",
    "decode_image",
    "fetch_data",
    "image_files",
    "import_data",
    "load_data",
    "near_sources",
    "protocol_transforms",
    "random_boxes",
    "read_pack",
    "stratified_split",
    "write_pack",
]
