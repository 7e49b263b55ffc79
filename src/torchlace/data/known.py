"""The sets that are known by name: their classes, counts and digests."""

from __future__ import annotations

from dataclasses import dataclass

_DIGITS = tuple("0123456789")
_FASHION = "T-shirt/top,Trouser,Pullover,Dress,Coat,Sandal,Shirt,Sneaker,Bag,Ankle boot"
_CIFAR10 = "airplane,automobile,bird,cat,deer,dog,frog,horse,ship,truck"
_COARSE = (
    "aquatic_mammals,fish,flowers,food_containers,fruit_and_vegetables,"
    "household_electrical_devices,household_furniture,insects,large_carnivores,"
    "large_man-made_outdoor_things,large_natural_outdoor_scenes,large_omnivores_and_herbivores,"
    "medium_mammals,non-insect_invertebrates,people,reptiles,small_mammals,trees,vehicles_1,"
    "vehicles_2"
)
_FINE = (
    "apple,aquarium_fish,baby,bear,beaver,bed,bee,beetle,bicycle,bottle,bowl,boy,bridge,bus,"
    "butterfly,camel,can,castle,caterpillar,cattle,chair,chimpanzee,clock,cloud,cockroach,"
    "couch,crab,crocodile,cup,dinosaur,dolphin,elephant,flatfish,forest,fox,girl,hamster,"
    "house,kangaroo,keyboard,lamp,lawn_mower,leopard,lion,lizard,lobster,man,maple_tree,"
    "motorcycle,mountain,mouse,mushroom,oak_tree,orange,orchid,otter,palm_tree,pear,"
    "pickup_truck,pine_tree,plain,plate,poppy,porcupine,possum,rabbit,raccoon,ray,road,"
    "rocket,rose,sea,seal,shark,shrew,skunk,skyscraper,snail,snake,spider,squirrel,streetcar,"
    "sunflower,sweet_pepper,table,tank,telephone,television,tiger,tractor,train,trout,tulip,"
    "turtle,wardrobe,whale,willow_tree,wolf,woman,worm"
)

# Sets of which a mirrored image no longer shows its class, known by name or usually called so.
NEVER_MIRRORED = frozenset({"digits", "svhn", "mnist", "emnist", "kmnist", "qmnist", "usps"})


@dataclass(frozen=True)
class KnownData:
    """A set that is known by name.

    Attributes:
        title: what it is.
        pack: name of the pack that holds it; None where it needs none.
        shape: channels, height, width.
        train: number of training images.
        test: number of test images.
        class_names: a name for each label.
        digests: digest of the set → what a set with this digest is.
        official: whether ``digests`` holds that of the official images, so that another digest
            means that something is wrong.
    """

    title: str
    pack: str | None
    shape: tuple[int, int, int]
    train: int
    test: int
    class_names: tuple[str, ...]
    digests: dict[str, str]
    official: bool = True


_OFFICIAL = "the complete official images"
_RECUT = "cut anew from the full-number photographs, not the official crops"

KNOWN = {
    "digits": KnownData(
        "handwritten digits of scikit-learn",
        None,
        (1, 8, 8),
        1438,
        359,
        _DIGITS,
        {"d8e9ef73262f687205fddd3cf1d57cb4": "scikit-learn's digits with the fixed test split"},
    ),
    "fashion_mnist": KnownData(
        "Zalando's articles of clothing",
        "fashion_mnist",
        (1, 28, 28),
        60_000,
        10_000,
        tuple(_FASHION.split(",")),
        {"1c4310f752a00e01ec7a2d8af06bfda4": _OFFICIAL},
    ),
    "cifar10": KnownData(
        "small photographs of 10 kinds",
        "cifar10",
        (3, 32, 32),
        50_000,
        10_000,
        tuple(_CIFAR10.split(",")),
        {"a44536025f78bb27741aebd88f7c9918": _OFFICIAL},
    ),
    "svhn": KnownData(
        "house numbers, cropped to a digit",
        "svhn",
        (3, 32, 32),
        73_257,
        26_032,
        _DIGITS,
        {"af6f0b3f38de63cb7e4ee122a0b309b8": _RECUT},
        official=False,
    ),
    "cifar100": KnownData(
        "small photographs of 100 kinds",
        "cifar100",
        (3, 32, 32),
        50_000,
        10_000,
        tuple(_FINE.split(",")),
        {"a4289bfa40c18ada5b5f8d229035269d": _OFFICIAL},
    ),
    "cifar100-coarse": KnownData(
        "the same photographs in 20 groups",
        "cifar100",
        (3, 32, 32),
        50_000,
        10_000,
        tuple(_COARSE.split(",")),
        {"5ef750ea98cb6868e418c416c3e4683f": _OFFICIAL},
    ),
}


def identify(digest: str) -> tuple[str, str] | None:
    """Name and description of the known set with this digest, or None.

    Example:
        >>> identify("a44536025f78bb27741aebd88f7c9918")
        ('cifar10', 'the complete official images')
    """
    for name, known in KNOWN.items():
        if digest in known.digests:
            return name, known.digests[digest]
    return None
