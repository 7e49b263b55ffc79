"""Soft targets: the loss is the mean of the losses of the labels, weighed by their shares."""

import copy
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from heads import reference
from heads.cases import CASES, CLASSES, batch, crossed, each_path, every_case, make, move, moved
from torch.nn import functional as F
from torch.testing import assert_close

import torchlace as tl
from torchlace._torch import TorchDispatchMode
from torchlace.backgrounds import refreshing
from torchlace.functional import empty_class_moments, update_class_moments
from torchlace.heads import AMC, Joint

ROWS = 8
WEIGHT = torch.tensor([0.5, 2.0, 1.0, 0.0, 3.0], dtype=torch.float64)
OPTIONS = [
    {},
    {"label_smoothing": 0.2},
    {"weight": WEIGHT},
    {"weight": WEIGHT, "label_smoothing": 0.2, "reduction": "sum"},
]


def mixture(rows=ROWS, seed=0):
    """Two labels for each sample, and how much the first counts."""
    generator = torch.Generator().manual_seed(seed)
    first, second = torch.randint(CLASSES, (2, rows), generator=generator)
    weight = torch.rand(rows, generator=generator, dtype=torch.float64)
    weight[0], first[1] = 1.0, second[1]
    return tl.Mixed(first, second, weight)


def dense(mixed):
    first, second = (F.one_hot(labels, CLASSES).double() for labels in mixed[:2])
    return torch.lerp(second, first, torch.as_tensor(mixed.weight)[..., None])


def probabilities(rows=ROWS, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, CLASSES, generator=generator, dtype=torch.float64).softmax(1)


def naive(head, x, shares, history, weight=None, label_smoothing=0.0):
    """The losses of all labels, from the definitions, weighed by their shares, (N,)."""
    options = {"weight": weight, "label_smoothing": label_smoothing, "reduction": "none"}

    def of(labels):
        return reference.loss(head, x, labels, history, **options)

    classes, rows = range(CLASSES), len(x)
    if not isinstance(head, AMC):
        labels = [torch.full((rows,), c) for c in classes]
        return sum(shares[:, c] * of(labels[c]) for c in classes)
    half, found = rows // 2, torch.zeros(rows, dtype=x.dtype)
    for c in classes:
        for k in classes:
            y = torch.tensor([c] * half + [k] * half)
            left, right = shares[:half, c], shares[half:, k]
            found = found + torch.cat([left * right] * 2) * of(y)
    return found


@every_case
def test_loss_and_gradients_are_those_of_the_labels(case):
    head = make(case)
    history = move(head, 4)
    head.eval()
    x = batch(ROWS, seed=77)[0].requires_grad_()
    parameters = [x, *head.parameters()]
    for shares, targets in (
        (probabilities(), probabilities()),
        (dense(mixture()), dense(mixture())),
        (dense(mixture()), mixture()),
    ):
        expected = naive(head, x, shares, history)
        found = head.loss(x, targets, reduction="none")
        assert_close(found, expected)
        slopes = torch.arange(1.0, ROWS + 1, dtype=x.dtype)
        assert_close(
            torch.autograd.grad(found @ slopes, parameters, allow_unused=True),
            torch.autograd.grad(expected @ slopes, parameters, allow_unused=True),
        )


@each_path
def test_options(case):
    head = make(case)
    history = move(head, 4)
    x, mixed = batch(ROWS, seed=77)[0], mixture(seed=3)
    head.eval()
    for options in OPTIONS[1:]:
        options = {key: value for key, value in options.items() if key != "reduction"}
        expected = naive(head, x, dense(mixed), history, **options)
        for targets in (mixed, dense(mixed)):
            assert_close(head.loss(x, targets, reduction="none", **options), expected)
            assert_close(head.loss(x, targets, reduction="sum", **options), expected.sum())
        assert_close(head.loss(x, dense(mixed), **options), expected.mean())


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("name", ["softmax", "normface", "lace"])
def test_probabilities_without_margins_are_cross_entropy(name, reduction, options):
    options = {**options, "reduction": reduction}
    head = tl.heads.create(name, 6, CLASSES, dtype=torch.float64)
    move(head, 3)
    x, shares = batch(ROWS)[0], probabilities()
    head.eval()
    expected = F.cross_entropy(head(x), shares, **options)
    assert_close(head.loss(x, shares, **options), expected)


@crossed("dtype", [torch.float32, torch.float64])
def test_a_label_that_is_alone_is_an_index_bit_for_bit(case, dtype):
    x, y = batch(13, dtype=dtype)
    torch.manual_seed(2)
    other, weight = torch.randint(CLASSES, (13,)), torch.rand(13)
    before = make(case, dtype=dtype)
    move(before, 3, dtype=dtype)
    for options in ({}, {"label_smoothing": 0.1}, {"reduction": "none"}, {"reduction": "sum"}):
        results = []
        for targets in (
            y,
            F.one_hot(y, CLASSES).to(dtype),
            tl.Mixed(y, y, weight),
            tl.Mixed(y, y, 0.3),
            tl.Mixed(y, other, 1.0),
            tl.Mixed(other, y, torch.tensor(0.0)),
        ):
            head = copy.deepcopy(before)
            for step in range(4):
                loss = head.loss(x + step, targets, **options)
            loss.sum().backward()
            slopes = {name: p.grad for name, p in head.named_parameters()}
            results.append((loss.detach(), dict(head.state_dict()), slopes))
        for loss, state, slopes in results[1:]:
            assert_close((loss, state), results[0][:2], rtol=0, atol=0)
            assert_close(slopes, results[0][2])


def weighted(batches, decay):
    """Samples of all batches, with the share of each in each class, decayed."""
    ages = range(len(batches) - 1, -1, -1)
    x = torch.cat([x for x, _ in batches])
    t = torch.cat([t * decay**age for (_, t), age in zip(batches, ages, strict=True)])
    squares = torch.cat(
        [(t * decay**age).square() for (_, t), age in zip(batches, ages, strict=True)]
    ).sum(0)
    return x, t, squares


@pytest.mark.parametrize("kind", ["probabilities", "mixed", "both"])
@pytest.mark.parametrize("options", [{}, {"rescale": False}, {"reduce": lambda sums: sums * 1}])
@pytest.mark.parametrize("sketched", [False, True])
@pytest.mark.parametrize("inplace", [False, True])
def test_class_moments_weigh_samples_by_their_shares(kind, options, sketched, inplace):
    torch.manual_seed(0)
    sketch = torch.randn(6, 2, dtype=torch.float64) if sketched else None
    moments = empty_class_moments(CLASSES, 6, dtype=torch.float64, sketch=sketch)
    batches = []
    for step in range(5):
        x = batch(ROWS, seed=step)[0] + 50
        mixed = kind == "mixed" or (kind == "both" and step % 2)
        targets = mixture(seed=step) if mixed else probabilities(seed=step)
        batches.append((x, dense(targets) if mixed else targets))
        first = {"rescale": True} if step == 0 else {}
        moments = update_class_moments(
            moments, x, targets, 0.9, sketch=sketch, inplace=inplace, **{**options, **first}
        )
    x, t, squares = weighted(batches, 0.9)
    means = (t.T @ x) / t.sum(0)[:, None]
    within = (
        sum(
            t[n, c] * torch.outer(x[n] - means[c], x[n] - means[c])
            for n in range(len(x))
            for c in range(CLASSES)
        )
        / t.sum()
    )
    if sketched:
        within = torch.cat([within.diagonal()[:, None], within @ sketch], dim=1)
    assert_close(moments.mass, t.sum(0))
    assert_close(moments.squares, squares)
    assert_close(moments.mean, means)
    assert_close(moments.within * moments.unit**2, within)


@pytest.mark.parametrize("sketched", [False, True])
def test_class_moments_of_two_processes(sketched):
    barrier, parts = threading.Barrier(2), [torch.zeros(0)] * 2
    sketch = torch.randn(6, 2, dtype=torch.float64) if sketched else None

    def process(rank):
        def reduce(sums):
            parts[rank] = sums
            barrier.wait()
            total = parts[0] + parts[1]
            barrier.wait()
            return total

        moments = empty_class_moments(CLASSES, 6, dtype=torch.float64, sketch=sketch)
        for x, *targets in batches:
            own = slice(rank, None, 2)
            mine = tl.Mixed(*(part[own] for part in targets[0])) if rank else targets[1][own]
            moments = update_class_moments(moments, x[own], mine, 0.9, reduce, sketch=sketch)
        return moments

    mixed = [mixture(seed=step) for step in range(3)]
    batches = [(batch(ROWS, seed=s)[0], each, dense(each)) for s, each in enumerate(mixed)]
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(process, (0, 1)))
    moments = empty_class_moments(CLASSES, 6, dtype=torch.float64, sketch=sketch)
    for x, targets, _ in batches:
        moments = update_class_moments(moments, x, targets, 0.9, sketch=sketch)
    for each in found:
        assert_close(each.mass, moments.mass)
        assert_close(each.squares, moments.squares)
        assert_close(each.mean, moments.mean)
        assert_close(each.within * each.unit**2, moments.within * moments.unit**2)


@pytest.mark.parametrize("targets", [mixture(), probabilities()])
def test_one_vs_one_and_total_backgrounds(targets):
    shares = dense(targets) if isinstance(targets, tl.Mixed) else targets
    x = batch(ROWS)[0]
    opponents = tl.backgrounds.create("one-vs-one", 6, CLASSES, dtype=torch.float64)
    opponents.observe(x, targets)
    assert_close(opponents.mean, (shares.T @ x) / shares.sum(0)[:, None])
    total = tl.backgrounds.create("total", 6, CLASSES, dtype=torch.float64)
    total.observe(x, targets)
    assert_close(total.mean, x.mean(0))


def test_a_batch_that_is_not_finite_teaches_nothing():
    moments = empty_class_moments(CLASSES, 6, dtype=torch.float64)
    moments = update_class_moments(moments, batch(ROWS)[0], probabilities(), 0.9)
    bad = batch(ROWS)[0]
    bad[2, 1] = torch.inf
    for targets in (probabilities(), mixture()):
        found = update_class_moments(moments, bad, targets, 0.9)
        assert_close(found.mean, moments.mean)
        assert_close(found.within * found.unit**2, moments.within * moments.unit**2)


@pytest.mark.parametrize("options", [*OPTIONS, {"reduction": "none"}])
@pytest.mark.parametrize("name", ["softmax", "arcface", "lace", "adacos"])
def test_two_labels_in_chunks(name, options):
    x, mixed = batch(ROWS)[0], mixture()
    mixed.first[3] = -100
    results = []
    for chunk in (None, 2):
        torch.manual_seed(0)
        head = tl.heads.create(name, 6, CLASSES, dtype=torch.float64, chunk=chunk)
        move(head, 2)
        loss = head.loss(x, mixed, **options)
        head.zero_grad()
        loss.sum().backward()
        results.append((loss.detach(), [p.grad for p in head.parameters()]))
    assert_close(*results)
    with pytest.raises(ValueError, match=r"no form in chunks: leave out chunk=2.*Mixed\("):
        head.loss(x, dense(mixture()))


@every_case
def test_a_mixed_sample_with_an_ignored_label_counts_for_nothing(case):
    head = make(case)
    move(head, 2)
    other = copy.deepcopy(head)
    x, mixed = batch(10)[0], mixture(10)
    mixed.first[2] = mixed.second[6] = mixed.first[7] = mixed.second[7] = 255
    kept = torch.tensor([0, 1, 3, 4, 5, 8, 9])
    found = head.loss(x, mixed, ignore_index=255, reduction="none")
    assert (found[[2, 6, 7]] == 0).all()
    if isinstance(head, AMC):  # pairs other samples
        return
    rest = tl.Mixed(*(part[kept] for part in mixed))
    assert_close(found[kept], other.loss(x[kept], rest, reduction="none"))
    assert_close(dict(head.state_dict()), dict(other.state_dict()))


BAD = {
    "negative": (lambda t: t + torch.tensor([-1.0, 1, 0, 0, 0]), r"first row 0: \[-"),
    "sum": (lambda t: 2 * t, "8 rows.*sum to 1"),
    "NaN": (lambda t: t * torch.nan, "must be finite"),
    "infinite": (lambda t: t + torch.inf, "must be finite"),
    "classes": (lambda t: t[:, :4], r"must have shape \(8, 5\), got \(8, 4\)"),
    "rows": (lambda t: t[:4], r"must have shape \(8, 5\), got \(4, 5\)"),
}


@pytest.mark.parametrize(("spoil", "message"), BAD.values(), ids=BAD.keys())
def test_rows_that_are_no_probabilities(spoil, message):
    head = tl.LACE(6, CLASSES, dtype=torch.float64)
    before = copy.deepcopy(head.state_dict())
    with pytest.raises(ValueError, match=message):
        head.loss(batch(ROWS)[0], spoil(probabilities()))
    assert_close(dict(head.state_dict()), dict(before), rtol=0, atol=0)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"weight": 1.5}, ValueError, r"weight must lie in \[0, 1\], got 1.5"),
        ({"weight": torch.tensor(-0.1)}, ValueError, "weight of Mixed must lie in .*got -0.1"),
        ({"weight": torch.ones(3)}, ValueError, r"one number or have shape \(8,\).*got \(3,\)"),
        ({"weight": torch.ones(8).long()}, TypeError, "weight of Mixed must be floating point"),
        ({"weight": torch.full((8,), torch.nan)}, ValueError, "weight of Mixed must lie in"),
        ({"first": torch.full((8,), 5)}, ValueError, r"targets must lie in 0\.\.4"),
        ({"second": torch.zeros(7).long()}, ValueError, r"targets must have shape \(8,\)"),
        ({"second": torch.zeros(8)}, TypeError, "targets must be class indices"),
    ],
)
def test_two_labels_that_do_not_fit(change, error, message):
    with pytest.raises(error, match=message):
        tl.Softmax(6, 5, dtype=torch.float64).loss(batch(ROWS)[0], mixture()._replace(**change))


def test_rounded_probabilities_pass():
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        shares = torch.full((4, 7), 1 / 7).to(dtype)
        tl.Softmax(6, 7).loss(torch.zeros(4, 6), shares)


def test_leading_dimensions():
    x, mixed = batch(24)[0], mixture(24)
    for head in (make(CASES[0]), tl.LACE(6, CLASSES, dtype=x.dtype)):
        placed = tl.Mixed(*(part.view(2, 3, 4) for part in mixed))
        other = copy.deepcopy(head)
        found = head.loss(x.view(2, 3, 4, -1), placed, reduction="none")
        assert_close(found.flatten(), other.loss(x, mixed, reduction="none"))
        found = head.loss(x.view(2, 3, 4, -1), dense(placed))
        assert_close(found, other.loss(x, dense(mixed)))


class Watch(TorchDispatchMode):
    """The operations that were called."""

    def __init__(self):
        super().__init__()
        self.names = set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.names.add(function._schema.name.removeprefix("aten::"))
        return function(*args, **(kwargs or {}))


@each_path
def test_no_step_waits_for_a_number(case):
    head, x = make(case, dtype=torch.float32), batch(ROWS, dtype=torch.float32)[0]
    mixed = mixture()
    for targets in (mixed, dense(mixed)):
        for refresh in (False, True):
            with refreshing(head, refresh), tl.checks(False), Watch() as watch:
                head.loss(x, targets).backward()
            waits = {"_local_scalar_dense", "nonzero", "masked_select", "item"}
            assert not watch.names & waits


@each_path
def test_compiled(case):
    x, mixed = batch(ROWS)[0], mixture()
    for targets in (mixed, dense(mixed)):
        eager, head = moved(case).train(), moved(case).train()

        def loss(x, targets, head=head):
            return head.loss(x, targets)

        compiled = torch.compile(loss, backend="eager", fullgraph=True)
        for step in range(3):
            assert_close(compiled(x + step, targets), eager.loss(x + step, targets))
        assert_close(head.eval()(x), eager.eval()(x))
        torch._dynamo.reset()


@each_path
def test_autocast_and_half_precision(case):
    x, mixed = batch(ROWS)[0], mixture()
    head = moved(case, dtype=torch.float32).train()
    with torch.autocast("cpu", torch.bfloat16):
        for targets in (mixed, dense(mixed), dense(mixed).bfloat16()):
            loss = head.loss(x.bfloat16(), targets)
            assert loss.dtype == torch.float32
            loss.backward()
            assert all(p.grad is None or p.grad.isfinite().all() for p in head.parameters())


@each_path
def test_gradients_by_transforms(case):
    head, x = moved(case), batch(ROWS)[0]
    for targets in (mixture(), probabilities()):
        leaf = x.clone().requires_grad_()
        head.loss(leaf, targets).backward()
        assert_close(torch.func.grad(lambda v, t=targets: head.loss(v, t))(x), leaf.grad)


@each_path
def test_margins_stay_finite_where_one_class_is_all(case):
    head = make(case, dtype=torch.float32)
    if isinstance(head, Joint):
        return
    x = (50 * head.weight.detach().clone()).requires_grad_()
    head.eval()
    loss = head.loss(x, probabilities(CLASSES).float())
    loss.backward()
    assert loss.isfinite()
    assert x.grad.isfinite().all()


@pytest.mark.parametrize("name", ["softmax", "lace", "arcface"])
def test_training_on_mixed_samples_learns(name):
    torch.manual_seed(0)
    centers = 2 * torch.randn(3, 8)
    y = torch.arange(300) % 3
    images = centers[y] + 0.7 * torch.randn(300, 8)
    backbone = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh())
    head = tl.heads.create(name, 16, 3)
    optimizer = torch.optim.Adam([*backbone.parameters(), *head.parameters()], lr=0.01)
    for _ in range(60):
        other, share = torch.randperm(300), torch.rand(300)
        mixed = torch.lerp(images[other], images, share[:, None])
        optimizer.zero_grad()
        head.loss(backbone(mixed), tl.Mixed(y, y[other], share)).backward()
        optimizer.step()
    head.eval()
    assert (head.predict(backbone(images)) == y).float().mean() > 0.95
