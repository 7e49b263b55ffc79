import math
import statistics

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional as tv

from torchlace.data import (
    Augment,
    DataError,
    ImageData,
    MemoryImages,
    Prepare,
    channel_statistics,
    load_data,
    protocol_transforms,
    write_pack,
)
from torchlace.data.boxes import crop_boxes, random_boxes

SCALE, RATIO = (0.8, 1.0), (3 / 4, 4 / 3)


@settings(max_examples=60)
@given(st.data(), st.integers(1, 40), st.integers(1, 40), st.booleans())
def test_a_crop_is_torchvision_s(data, height, width, flip):
    h, w = data.draw(st.integers(1, height)), data.draw(st.integers(1, width))
    top, left = data.draw(st.integers(0, height - h)), data.draw(st.integers(0, width - w))
    size = data.draw(st.tuples(st.integers(1, 40), st.integers(1, 40)))
    images = torch.rand(2, 3, height, width, generator=torch.Generator().manual_seed(0))
    boxes = torch.tensor([[top, left, h, w], [0, 0, height, width]], dtype=torch.float32)
    flipped = torch.tensor([flip, False])
    ours = crop_boxes(images, boxes, size, flipped)
    theirs = tv.resized_crop(images[:1], top, left, h, w, list(size), antialias=False)
    theirs = tv.horizontal_flip(theirs) if flip else theirs
    torch.testing.assert_close(ours[:1], theirs, atol=1e-3, rtol=0)
    whole = tv.resize(images[1:], list(size), antialias=False)
    torch.testing.assert_close(ours[1:], whole, atol=1e-3, rtol=0)


@pytest.mark.parametrize(("height", "width"), [(32, 32), (8, 8), (224, 224), (30, 40), (20, 60)])
def test_boxes_are_distributed_as_torchvision_s(height, width):
    """Quantiles of what 4,000 draws of either give: area, aspect ratio and place."""
    torch.manual_seed(0)
    count = 4000
    image = torch.empty(1, height, width)
    transform = v2.RandomResizedCrop(height, scale=SCALE, ratio=RATIO)
    theirs = [transform.make_params([image]) for _ in range(count)]
    theirs = torch.tensor([[p["top"], p["left"], p["height"], p["width"]] for p in theirs]).float()
    ours = random_boxes(torch.rand(count, 22), height, width, SCALE, RATIO)

    def features(boxes):
        top, left, h, w = boxes.T
        return {
            "area": h * w / (height * width),
            "aspect": w / h,
            "top": top / height,
            "left": left / width,
        }

    at = torch.tensor([0.05, 0.25, 0.5, 0.75, 0.95])
    for name, values in features(ours).items():
        other = features(theirs)[name]
        assert values.mean().item() == pytest.approx(other.mean().item(), abs=0.01), name
        assert values.std().item() == pytest.approx(other.std().item(), abs=0.01), name
        gap = (values.quantile(at) - other.quantile(at)).abs().max().item()
        assert gap <= 1.01 / min(height, width) + 0.012, name


@settings(max_examples=40)
@given(
    st.integers(1, 64),
    st.integers(1, 64),
    st.floats(0.05, 1),
    st.floats(0.2, 5),
    st.integers(0, 2**32),
)
def test_a_box_lies_in_the_image(height, width, low, ratio, seed):
    draws = torch.rand(64, 22, generator=torch.Generator().manual_seed(seed))
    ratios = (min(ratio, 1 / ratio), max(ratio, 1 / ratio))
    top, left, h, w = random_boxes(draws, height, width, (low, 1.0), ratios).T
    assert (h >= 1).all()
    assert (w >= 1).all()
    assert (top >= 0).all()
    assert (left >= 0).all()
    assert (top + h <= height).all()
    assert (left + w <= width).all()


def test_extreme_draws_stay_in_the_image():
    for value in (0.0, 1 - 2**-24):
        draws = torch.full((1, 22), value)
        top, left, h, w = random_boxes(draws, 32, 48, SCALE, RATIO)[0]
        assert 0 <= top <= 32 - h
        assert 0 <= left <= 48 - w


@settings(max_examples=25)
@given(st.integers(2, 24), st.integers(2, 24), st.integers(1, 3), st.booleans())
def test_augmented_images_stay_in_range(height, width, channels, mirror):
    images = torch.randint(256, (5, channels, height, width), dtype=torch.uint8)
    augment = Augment([0.5] * channels, [0.25] * channels, (height, width), mirror=mirror)
    out = augment(images)
    assert out.shape == images.shape
    assert out.dtype == torch.float32
    assert out.abs().max() <= 2.0001


def test_the_same_generator_gives_the_same_images():
    images = torch.randint(256, (8, 3, 16, 16), dtype=torch.uint8)
    augment = Augment([0.5] * 3, [0.25] * 3, 16, mirror=True)
    first, second = (augment(images, torch.Generator().manual_seed(3)) for _ in range(2))
    assert torch.equal(first, second)
    assert not torch.equal(first, augment(images, torch.Generator().manual_seed(4)))


def test_digits_are_never_mirrored_and_others_half_of_the_time():
    # A bright left edge stays left in any crop, and goes right only by mirroring.
    images = torch.zeros(2000, 1, 16, 16, dtype=torch.uint8)
    images[..., :8] = 255
    for mirror, share in ((False, 0), (True, 0.5)):
        out = Augment([0.0], [1.0], 16, mirror=mirror)(images, torch.Generator().manual_seed(0))
        right = (out[..., 12:].mean(dim=(1, 2, 3)) > out[..., :4].mean(dim=(1, 2, 3))).float()
        assert right.mean().item() == pytest.approx(share, abs=0.04)


@pytest.mark.parametrize("name", ["svhn", "SVHN", "MNIST", "photos"])
def test_sets_of_digits_are_known_by_name(name, tmp_path):
    x = np.zeros((8, 4, 4), np.uint8)
    path = write_pack(tmp_path / f"{name}.npz", {"x_train": x, "y_train": np.arange(8) % 2})
    assert load_data(path).mirror == (name == "photos")


def test_each_image_has_its_own_crop():
    image = torch.arange(256, dtype=torch.uint8).view(1, 1, 16, 16).expand(64, 1, 16, 16)
    out = Augment([0.0], [1.0], 16, mirror=False)(image)
    assert len(out.flatten(1).unique(dim=0)) > 20


def test_native_protocol():
    data = load_data("digits")
    augment, prepare = protocol_transforms("native", data, channel_statistics(data.train))
    values = prepare(data.train.batch(torch.arange(len(data.train))))
    assert values.shape[1:] == (1, 8, 8)
    assert values.mean().item() == pytest.approx(0, abs=1e-4)
    assert values.std().item() == pytest.approx(1, abs=1e-3)
    assert not augment.mirror
    assert augment.size == (8, 8)
    assert augment.scale == SCALE


@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 28, 28), (3, 300, 400), (3, 256, 256)])
def test_paper_protocol_is_torchvision_s(shape):
    """Resize 256, centre crop 224, ImageNet's statistics, as the paper evaluates."""
    images = torch.randint(256, (2, *shape), dtype=torch.uint8)
    smooth = tv.gaussian_blur(images, [5, 5])
    data = _data(smooth)
    augment, prepare = protocol_transforms("paper", data)
    reference = v2.Compose(
        [
            v2.ToDtype(torch.float32, scale=True),
            v2.Resize(256, antialias=True),
            v2.CenterCrop(224),
            v2.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
        ]
    )
    torch.testing.assert_close(
        prepare(smooth), reference(smooth.expand(-1, 3, -1, -1)), atol=1e-3, rtol=0
    )
    out = augment(smooth)
    assert out.shape == (2, 3, 224, 224)
    assert torch.isfinite(out).all()


def test_paper_augmentation_is_resize_then_crop():
    images = tv.gaussian_blur(torch.randint(256, (1, 3, 32, 32), dtype=torch.uint8), [3, 3])
    augment, _ = protocol_transforms("paper", _data(images))
    generator = torch.Generator().manual_seed(5)
    out = augment(images, generator)
    draws = torch.rand(1, 23, generator=torch.Generator().manual_seed(5))
    top, left, h, w = random_boxes(draws[:, :-1], 256, 256, SCALE, RATIO)[0].int().tolist()
    large = tv.resize(images.float() / 255, [256, 256], antialias=True)
    theirs = tv.resized_crop(large, top, left, h, w, [224, 224], antialias=False)
    theirs = tv.horizontal_flip(theirs) if draws[0, -1] < 0.5 else theirs
    theirs = tv.normalize(theirs, [0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
    torch.testing.assert_close(out, theirs, atol=5e-3, rtol=0)


def test_errors_say_what_is_wrong():
    with pytest.raises(ValueError, match="did you mean 'native'"):
        protocol_transforms("natve", load_data("digits"))
    with pytest.raises(DataError, match="grey or RGB"):
        protocol_transforms("paper", _data(torch.zeros(2, 5, 8, 8, dtype=torch.uint8)))
    with pytest.raises(DataError, match="2 channels, the mean has 3"):
        Prepare([0.0] * 3, [1.0] * 3)(torch.zeros(1, 2, 4, 4, dtype=torch.uint8))
    with pytest.raises(DataError, match="std positive"):
        Prepare([0.0], [0.0])
    with pytest.raises(DataError, match="scale and ratio"):
        Augment([0.0], [1.0], 8, mirror=False, scale=(1.0, 0.8))


def test_the_share_of_central_crops_is_torchvision_s():
    """Ten tries fail on a square about once in a hundred; the whole image is taken then."""
    boxes = random_boxes(torch.rand(20_000, 22), 1000, 1000, SCALE, RATIO)
    whole = (boxes[:, 2] == 1000) & (boxes[:, 3] == 1000)
    accepted = statistics.fmean(-math.log(0.8 + 0.2 * (k + 0.5) / 999) for k in range(999))
    expected = (1 - accepted / math.log(4 / 3)) ** 10
    assert whole.float().mean().item() == pytest.approx(expected, abs=0.003)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_cuda_graph_holds_it():
    images = torch.randint(256, (32, 3, 32, 32), dtype=torch.uint8, device="cuda")
    augment = Augment([0.5] * 3, [0.25] * 3, 32, mirror=True)
    generator = torch.Generator("cuda").manual_seed(0)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        augment(images, generator)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    graph.register_generator_state(generator)
    with torch.cuda.graph(graph):
        out = augment(images, generator)
    generator.manual_seed(1)
    graph.replay()
    first = out.clone()
    graph.replay()
    assert not torch.equal(first, out)
    generator.manual_seed(1)
    torch.testing.assert_close(first, augment(images, generator))


def _data(images):
    part = MemoryImages(images, torch.zeros(len(images)).long())
    return ImageData("some", part, part, ("a",), True, "")
