"""Whatever is finite goes in: what comes out is finite, or an error says what is too large."""

import math
import re

import pytest
import torch
from heads.cases import (
    CLASSES,
    WIDTH,
    batch,
    cases_where,
    each_path,
    gradients,
    is_cosine,
    joint,
    lace_on,
    make,
    registered,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

import torchlace as tl
from torchlace.backgrounds import Running

HALVES = [torch.float16, torch.bfloat16]
DTYPES = [*HALVES, torch.float32, torch.float64]
HEADS = [*map(registered, tl.heads.names()), *map(lace_on, tl.backgrounds.names()), joint()]
ROWS = 6

weights = st.none() | st.lists(
    st.sampled_from([0.0, 1.0, 1e10]) | st.floats(-12, 10).map(lambda power: 10**power),
    min_size=CLASSES,
    max_size=CLASSES,
)


def sizes(dtype):
    """Any magnitude of the type, from the smallest denormal to the largest number."""
    info = torch.finfo(dtype)
    smallest, high = info.smallest_normal * info.eps, min(math.log2(info.max), 1023)
    powers = st.floats(math.log2(smallest), high).map(lambda power: 2.0**power)
    return st.sampled_from([0.0, smallest, info.smallest_normal, 1.0, info.max]) | powers


@st.composite
def features(draw, dtype):
    """Of one size, or of one for each row or each entry."""
    shape = draw(st.sampled_from([(1, 1), (ROWS, 1), (ROWS, WIDTH)]))
    count, most = math.prod(shape), torch.finfo(dtype).max
    drawn = draw(st.lists(sizes(dtype), min_size=count, max_size=count))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 99)))
    directions = torch.randn(ROWS, WIDTH, generator=generator, dtype=torch.float64)
    scaled = directions * torch.tensor(drawn, dtype=torch.float64).view(shape)
    return scaled.clamp(-most, most).to(dtype)


def check_step(head, x, y, **options):
    x = x.clone().requires_grad_()
    loss = head.loss(x, y, **options)
    assert torch.isfinite(loss).all(), "loss"
    found = gradients(loss.sum(), head, x) | dict(head.named_buffers())
    for name, value in found.items():
        assert torch.isfinite(value).all(), name
    return found


@pytest.mark.parametrize("case", HEADS, ids=repr)
@given(data=st.data())
@settings(max_examples=12, database=None)
def test_what_is_finite_stays_finite(case, data):
    dtype = data.draw(st.sampled_from(DTYPES))
    own = data.draw(st.sampled_from([torch.float32, dtype]))
    torch.manual_seed(0)
    head = case.build(WIDTH, CLASSES, dtype=own).train()
    weight = data.draw(weights)
    options = {
        "weight": None if weight is None else torch.tensor(weight),
        "label_smoothing": data.draw(st.sampled_from([0.0, 0.1, 1.0])),
        "reduction": data.draw(st.sampled_from(["mean", "sum", "none"])),
        "ignore_index": data.draw(st.sampled_from([-100, 1])),
    }
    for _ in range(data.draw(st.integers(1, 3))):
        labels = st.integers(0, CLASSES - 1) | st.just(options["ignore_index"])
        y = torch.tensor(data.draw(st.lists(labels, min_size=ROWS, max_size=ROWS)))
        try:
            check_step(head, data.draw(features(dtype)), y, **options)
        except ValueError as error:
            if re.match(r"(features (are as large as|lie up to)|weight goes from) \d", str(error)):
                return
            raise


def most(head):
    """The largest features that a head of fp32 computes with."""
    if isinstance(head, tl.Joint):
        return min(map(most, head.heads.values()))
    return float(torch.finfo(torch.float32).max) ** head._reach


@each_path
@pytest.mark.parametrize("weight", [None, torch.full((CLASSES,), 1e10)])
def test_the_largest_features_there_may_be(case, weight):
    head, (x, y) = make(case, dtype=torch.float32).train(), batch(dtype=torch.float32)
    x = x / x.abs().max() * most(head)
    for _ in range(3):
        check_step(head, 0.999 * x, y, weight=weight, reduction="sum")
    before = {name: value.clone() for name, value in head.state_dict().items()}
    for call in (head, lambda x: head.loss(x, y)):
        with pytest.raises(ValueError, match=r"features are as large as .* in 1 of 16 .* float32"):
            call(1.001 * x)
    assert_close(dict(head.state_dict()), before, rtol=0, atol=0)


def test_why_centre_loss_takes_no_larger_features():
    head, (x, y) = tl.Center(WIDTH, CLASSES), batch(dtype=torch.float32)
    with pytest.raises(ValueError, match=r"3\.6e\+11 is the most .* the centre loss squares them;"):
        head.loss(1e17 * x, y)
    with tl.checks(False):
        assert head.loss(1e20 * x, y) == torch.inf


def test_features_of_double_precision_too_large_for_a_head_of_single():
    head, (x, _) = tl.NormFace(WIDTH, CLASSES), batch()
    with pytest.raises(ValueError, match=r"as large as .*e\+50.* NormFace can compute .* float32"):
        head(1e50 * x)
    assert torch.isfinite(head.double()(1e50 * x)).all()


@pytest.mark.parametrize("name", [n for n in tl.backgrounds.names() if "learned" not in n])
def test_features_that_a_whitening_of_others_would_make_infinite(name):
    head, (x, y) = make(lace_on(name), dtype=torch.float32), batch(dtype=torch.float32)
    check_step(head.train(), 1e-20 * x, y)
    check_step(head.eval(), x, y)
    with pytest.raises(ValueError, match=r"lie up to .* would whiten that to .*, so much smaller"):
        head(1e30 * x)


def test_a_mean_that_a_whitening_of_others_would_make_infinite():
    head = make(lace_on("one-vs-one"), dtype=torch.float32).train()
    for size, label in ((1e29, 0), (0.0, 1), (0.0, 1)):
        check_step(head, torch.full((1, WIDTH), size), torch.tensor([label]))
    with pytest.raises(ValueError, match=r"lie up to 1e\+29 from the mean"):
        head.loss(torch.full((1, WIDTH), 1e-20), torch.tensor([2]))


@each_path
def test_denormal_features_teach_what_zeros_do(case):
    x, y = batch(dtype=torch.float32)
    tiny, zero = (make(case, dtype=torch.float32).train() for _ in range(2))
    for _ in range(4):
        found, expected = check_step(tiny, 1e-41 * x, y), check_step(zero, 0 * x, y)
        assert_close(found, expected)


@each_path
@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_denormal_features_of_half_precision(case, dtype):
    x, y = batch(dtype=torch.float64)
    x = (x * torch.finfo(dtype).smallest_normal).to(dtype)
    check_step(make(case, dtype=torch.float32).train(), x, y)


@cases_where(
    lambda head: is_cosine(head) and not any(isinstance(b, Running) for b in head.modules())
)
def test_gradients_too_large_for_fp16_keep_their_direction(case):
    head, (x, y) = make(case, dtype=torch.float32).eval(), batch(8, dtype=torch.float64)
    for mean in (getattr(part, "location", None) for part in head.modules()):
        if mean is not None:
            mean.data.zero_()
    x = (1e-6 * x).half()
    exact = x.double().requires_grad_()
    (expected,) = torch.autograd.grad(head.double().loss(exact, y, reduction="sum"), exact)
    x.requires_grad_()
    (found,) = torch.autograd.grad(head.float().loss(x, y, reduction="sum"), x)
    largest = expected.abs().amax(1)
    assert (largest > 65504).any()
    assert_close(found.abs().amax(1).double(), largest.clamp_max(65504), rtol=2e-3, atol=0)
    assert_close(
        tl.functional.unit(found.double()), tl.functional.unit(expected), rtol=0, atol=2e-3
    )


def test_gradients_too_large_for_parameters_of_fp16_are_cut():
    head = tl.Softmax(WIDTH, CLASSES, dtype=torch.float16)
    x, y = batch(64, dtype=torch.float64)
    found = check_step(head, (6e4 * x / x.abs().max()).half(), y, reduction="sum")
    assert found["weight"].abs().max() == 65504


def test_gradients_are_cut_in_compiled_steps_and_transforms_too():
    head, (x, y) = make(registered("lace"), dtype=torch.float32).eval(), batch(8)
    x = (1e-7 * x).half().requires_grad_()
    (expected,) = torch.autograd.grad(head.loss(x, y), x)
    assert expected.abs().max() == 65504
    compiled = torch.compile(head.loss, fullgraph=True, backend="aot_eager")
    assert_close(torch.autograd.grad(compiled(x, y), x)[0], expected, rtol=2e-3, atol=1.0)
    assert_close(torch.func.grad(lambda x: head.loss(x, y))(x.detach()), expected)
    each = torch.func.vmap(torch.func.jacrev(lambda row: head(row[None])[0]))(x.detach())
    assert each.abs().max() == 65504
    tangent = torch.func.jvp(head, (x.detach(),), (torch.ones_like(x),))[1]
    assert torch.isfinite(tangent).all()


def test_inside_autocast_a_gradient_scaler_is_told():
    head, (x, y) = tl.NormFace(WIDTH, CLASSES), batch(8, dtype=torch.float16)
    x = (1e-6 * x).requires_grad_()
    with torch.autocast("cpu", torch.float16):
        loss = head.loss(x, y)
    assert torch.autograd.grad(1e4 * loss, x)[0].isinf().any()


@each_path
@pytest.mark.parametrize("size", [1e-30, 1e9])
def test_only_ratios_of_class_weights_count(case, size):
    weight = torch.linspace(0.3, 1.7, CLASSES)
    x, y = batch(dtype=torch.float32)
    plain, scaled = (make(case, dtype=torch.float32).train() for _ in range(2))
    expected = check_step(plain, x, y, weight=weight)
    assert_close(check_step(scaled, x, y, weight=size * weight), expected, rtol=1e-4, atol=1e-6)


@each_path
def test_class_weights_that_sum_to_nothing(case):
    x, y = batch(dtype=torch.float32)
    head = make(case, dtype=torch.float32).train()
    check_step(head, x, y, weight=torch.full((CLASSES,), 1e-42), label_smoothing=0.1)
