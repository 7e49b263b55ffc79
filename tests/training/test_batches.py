import pytest
import torch
from torch.testing import assert_close

from torchlace.data import Augment, FileImages, MemoryImages
from torchlace.training.inputs import Augmentation, Batches

CPU = torch.device("cpu")
COUNT = 53


@pytest.fixture(scope="module")
def memory():
    images = torch.randint(256, (COUNT, 3, 6, 6), dtype=torch.uint8)
    return MemoryImages(images, torch.arange(COUNT) % 7)


@pytest.fixture(scope="module")
def files(memory, tmp_path_factory):
    from PIL import Image

    folder = tmp_path_factory.mktemp("files")
    for number, image in enumerate(memory.images):
        Image.fromarray(image.permute(1, 2, 0).numpy()).save(folder / f"{number}.png")
    paths = [folder / f"{number}.png" for number in range(COUNT)]
    return FileImages(paths, memory.labels, 3, (6, 6))


INDICES = torch.arange(1, COUNT, 2)


def test_the_order_follows_from_seed_and_epoch(memory):
    batches = Batches(memory, INDICES, CPU)
    order = batches.order(3, 5, 8)
    assert order.shape == (len(INDICES) // 8, 8)
    assert order.unique().numel() == order.numel()
    assert torch.equal(order, Batches(memory, INDICES, CPU, rank=1, world=2).order(3, 5, 8))
    others = [batches.order(3, 6, 8), batches.order(4, 5, 8)]
    assert not any(torch.equal(order, other) for other in others)


def test_no_epoch_of_a_seed_repeats_one_of_another(memory):
    batches = Batches(memory, INDICES, CPU)
    orders = {tuple(batches.order(s, e, 26)[0].tolist()) for s in range(5) for e in range(40)}
    assert len(orders) == 200


@pytest.mark.parametrize("world", [2, 4])
def test_the_shares_of_the_processes_make_up_the_batch(world, memory):
    whole = Batches(memory, INDICES, CPU)
    order = whole.order(0, 1, 8)
    shares = [
        Batches(memory, INDICES, CPU, rank=rank, world=world).training(order)
        for rank in range(world)
    ]
    for (images, labels), *parts in zip(whole.training(order), *shares, strict=True):
        for rank, (some, theirs) in enumerate(parts):
            assert torch.equal(some, images[rank::world])
            assert torch.equal(theirs, labels[rank::world])


@pytest.mark.parametrize("workers", [0, 2])
def test_streamed_batches_are_those_from_memory(workers, memory, files):
    held = Batches(memory, INDICES, CPU)
    streamed = Batches(files, INDICES, CPU, workers=workers)
    assert held.cached is not None
    assert streamed.cached is None
    order = held.order(0, 1, 8)
    pairs = zip(held.training(order), streamed.training(order), strict=True)
    assert [torch.equal(a[0], b[0]) and torch.equal(a[1], b[1]) for a, b in pairs] == [True] * 3
    pairs = list(zip(held.evaluation(10), streamed.evaluation(10), strict=True))
    assert [len(images) for images, _ in pairs] == [10, 10, 6]
    assert all(torch.equal(mine, theirs) for mine, theirs in pairs)


def test_evaluation_shows_every_image_once_in_order(memory):
    batches = Batches(memory, INDICES, CPU)
    assert torch.equal(torch.cat([*batches.evaluation(10)]), memory.images[INDICES])
    assert torch.equal(batches.labels, memory.labels[INDICES])


def augmentation(rank=0, world=1, batch=8):
    augment = Augment([0.5] * 3, [0.25] * 3, (6, 6), mirror=True)
    return Augmentation(augment, None, CPU, batch, rank, world)


def test_processes_draw_what_one_process_draws(memory):
    images = memory.images[:8]
    one, *two = augmentation(), augmentation(0, 2), augmentation(1, 2)
    for each in (one, *two):
        each.start_epoch(3, 4)
    labels = torch.arange(8)
    for _ in range(3):
        whole, _ = one(images, labels)
        for rank, each in enumerate(two):
            mine, targets = each(images[rank::2], labels[rank::2])
            assert_close(mine, whole[rank::2], rtol=0, atol=0)
            assert torch.equal(targets, labels[rank::2])


def test_draws_follow_from_seed_and_epoch(memory):
    augment, images = augmentation(), memory.images[:8]
    results = []
    for seed, epoch in ((0, 1), (0, 2), (1, 1), (0, 1)):
        augment.start_epoch(seed, epoch)
        results.append(augment(images, torch.arange(8))[0])
    assert torch.equal(results[0], results[3])
    assert not torch.equal(results[0], results[1])
    assert not torch.equal(results[0], results[2])
