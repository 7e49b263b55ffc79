import pytest
import torch
from heads.cases import CLASSES, WIDTH, batch, each_path, make

import torchlace as tl
from torchlace.backgrounds import Learned, OneVsAll, Total, Within

X, Y = batch(8)


def bad(value, row=3):
    x = X.clone()
    x[row, 1] = value
    return x


FEATURES = {
    "width": (torch.zeros(8, 7), ValueError, r"features must have shape \(N, 6\), got \(8, 7\)"),
    "one dimension": (torch.zeros(6), ValueError, r"features .*\(N, 6\), got \(6,\)"),
    "no dimension": (torch.zeros(()), ValueError, r"features .*\(N, 6\), got \(\)"),
    "features not last": (torch.zeros(8, 6, 1), ValueError, r"features .*got \(8, 6, 1\)"),
    "integers": (torch.zeros(8, 6, dtype=torch.long), TypeError, r"features .*floating.*int64"),
    "a list": ([[0.0] * 6] * 8, TypeError, "features must be a torch.Tensor, got list"),
    "NaN": (bad(torch.nan), ValueError, r"features hold NaN.* 1 of 8 rows.*row 3"),
    "infinity": (bad(torch.inf), ValueError, r"features hold NaN or infinite.*row 3"),
}
TARGETS = {
    "too large": (torch.full((8,), 5), ValueError, r"targets must lie in 0\.\.4 .*got \[5\]"),
    "negative": (torch.full((8,), -1), ValueError, r"targets .*ignore_index=-100, got \[-1\]"),
    "float": (Y.double(), TypeError, "targets must be class indices.*float64"),
    "bool": (Y > 2, TypeError, "targets must be class indices.*bool"),
    "length": (Y[:7], ValueError, r"targets must have shape \(8,\).*got \(7,\)"),
    "two dimensions": (Y[:, None], ValueError, r"targets must have shape \(8,\).*got \(8, 1\)"),
    "a list": (Y.tolist(), TypeError, "targets must be a torch.Tensor, got list"),
}
OPTIONS = {
    "weight shape": ({"weight": torch.ones(4)}, ValueError, r"weight .*\(5,\), got \(4,\)"),
    "weight type": ({"weight": [1.0] * 5}, TypeError, "weight must be a floating-point"),
    "integer weight": ({"weight": torch.ones(5).long()}, TypeError, "weight must be a floating"),
    "infinite weight": (
        {"weight": torch.tensor([1, 1, torch.inf, 1, 1])},
        ValueError,
        r"weight must lie in \[0, .*got inf: .* a class without samples 0",
    ),
    "NaN weight": ({"weight": torch.full((5,), torch.nan)}, ValueError, "weight must .*got nan"),
    "negative weight": ({"weight": -torch.ones(5)}, ValueError, "weight must lie in .*got -1"),
    "weights far apart": (
        {"weight": X.new_tensor([1e-90, 1, 1, 1, 1e10]), "label_smoothing": 0.1},
        ValueError,
        r"weight goes from 1e-90 to 1e\+10.*1e\+100 times.*leave out label_smoothing",
    ),
    "smoothing above one": (
        {"label_smoothing": 1.5},
        ValueError,
        r"label_smoothing .*\[0, 1\].*1\.5",
    ),
    "negative smoothing": ({"label_smoothing": -0.1}, ValueError, r"label_smoothing .*-0\.1"),
    "smoothing type": ({"label_smoothing": "a"}, TypeError, "label_smoothing must be a number"),
    "ignore_index": (
        {"ignore_index": None},
        TypeError,
        "ignore_index must be an integer, got None",
    ),
    "reduction": ({"reduction": "man"}, ValueError, "unknown reduction 'man': did you mean 'mean'"),
}
CONSTRUCTORS = {
    "negative scale": ("normface", {"scale": -1.0}, ValueError, "scale .*got -1"),
    "zero scale": ("lace", {"scale": 0.0}, ValueError, r"scale must lie in \(0, inf\), got 0"),
    "infinite scale": ("lace", {"scale": float("inf")}, ValueError, "scale .*got inf"),
    "NaN scale": ("lace", {"scale": float("nan")}, ValueError, "scale .*got nan"),
    "scale word": ("lace", {"scale": "atuo"}, ValueError, "scale must be .*'auto'.*got 'atuo'"),
    "scale type": ("lace", {"scale": None}, TypeError, "scale must be a number, got None"),
    "arcface margin": ("arcface", {"margin": 2.0}, ValueError, r"margin .*\[0, 1\.5708\], got 2"),
    "cosface margin": ("cosface", {"margin": -0.1}, ValueError, r"margin .*\[0, 2\], got -0\.1"),
    "sphereface margin": ("sphereface", {"margin": 0.5}, ValueError, r"margin .*\[1, 10\].*0\.5"),
    "amc margin": ("amc", {"margin": 4.0}, ValueError, r"margin must lie in \(0, 3\.14.*got 4"),
    "center weight": ("center", {"auxiliary_weight": -1.0}, ValueError, "auxiliary_weight .*-1"),
    "infinite weight": ("amc", {"auxiliary_weight": float("inf")}, ValueError, r"\[0, inf\), got"),
    "softmax weight": ("amc", {"softmax_weight": -1.0}, ValueError, "softmax_weight .*got -1"),
    "zero chunk": ("softmax", {"chunk": 0}, ValueError, "chunk must be at least 1, got 0"),
    "float chunk": ("softmax", {"chunk": 2.5}, TypeError, r"chunk must be an integer, got 2\.5"),
    "chunk word": ("softmax", {"chunk": "all"}, TypeError, "chunk must be .*got 'all'"),
    "space": (
        "lace",
        {"signature_space": "white"},
        ValueError,
        "signature_space 'white'.*whitened",
    ),
    "background name": (
        "lace",
        {"background": "witin"},
        ValueError,
        "background 'witin'.*'within'",
    ),
    "background width": (
        "lace",
        {"background": Learned(7)},
        ValueError,
        "background has 7 features, the head 6",
    ),
    "background classes": (
        "lace",
        {"background": OneVsAll(6, 4)},
        ValueError,
        "background has 4 classes, the head 5",
    ),
    "background classes of its statistics": (
        "lace",
        {"background": Within(6, 3)},
        ValueError,
        "background has 3 classes, the head 5",
    ),
    "no background": ("lace", {"background": None}, TypeError, "background must be .*got None"),
    "a class for a background": (
        "lace",
        {"background": Total},
        TypeError,
        "background must be",
    ),
    "chunks of a background for each class": (
        "lace",
        {"background": "one-vs-all", "chunk": 2},
        ValueError,
        "OneVsAll .*no form in chunks.*chunk=2",
    ),
    "options beside a background": (
        "lace",
        {"background": Total(6), "background_options": {"decay": 0.5}},
        TypeError,
        "set them on the Total",
    ),
    "mean beside a background": (
        "lace",
        {"background": Total(6), "mean": False},
        TypeError,
        "mean, covariance",
    ),
    "anchored without class means": (
        "lace",
        {"background": "total", "anchored": True},
        ValueError,
        "anchored signatures need a background that learns where the classes lie",
    ),
    "anchored in feature space": (
        "lace",
        {"signature_space": "features", "anchored": True},
        ValueError,
        "anchored signatures .* live in the whitened space",
    ),
    "whitened one-vs-one": (
        "lace",
        {"background": "one-vs-one", "signature_space": "whitened"},
        ValueError,
        'OneVsOne has no whitened space.*signature_space="features"',
    ),
    "decay": ("lace", {"background_options": {"decay": 1.0}}, ValueError, "decay must be below 1"),
    "shrinkage": (
        "lace",
        {"background": "total", "background_options": {"shrinkage": 2.0}},
        ValueError,
        "shrinkage .*got 2",
    ),
}


def table(cases):
    return pytest.mark.parametrize("wrong", cases.values(), ids=cases.keys())


@each_path
def test_features_and_targets(case):
    head = make(case)
    for x, error, message in FEATURES.values():
        with pytest.raises(error, match=message):
            head(x)
        with pytest.raises(error, match=message):
            head.loss(x, Y)
    for y, error, message in TARGETS.values():
        with pytest.raises(error, match=message):
            head.loss(X, y)


@table(TARGETS)
def test_targets_of_a_calibration(wrong):
    targets, error, message = wrong
    with pytest.raises(error, match=message):
        tl.Softmax(WIDTH, CLASSES, dtype=X.dtype).calibrate(X, targets)


@each_path
def test_loss_options(case):
    head = make(case)
    for options, error, message in OPTIONS.values():
        with pytest.raises(error, match=message):
            head.loss(X, Y, **options)


@table(CONSTRUCTORS)
def test_constructors(wrong):
    name, options, error, message = wrong
    with pytest.raises(error, match=message):
        tl.heads.create(name, WIDTH, CLASSES, **options)


@pytest.mark.parametrize("name", ["softmax", "lace"])
@pytest.mark.parametrize(
    ("sizes", "error", "message"),
    [
        ((0, 5), ValueError, "in_features must be at least 1, got 0"),
        ((6, 0), ValueError, "num_classes must be at least 2, got 0"),
        ((6, 1), ValueError, r"at least 2, got 1: .*nothing to tell apart.*give two .*ACEDetector"),
        ((6.0, 5), TypeError, r"in_features must be an integer, got 6\.0"),
        ((6, True), TypeError, "num_classes must be an integer, got True"),
    ],
)
def test_sizes(name, sizes, error, message):
    with pytest.raises(error, match=message):
        tl.heads.create(name, *sizes)


@pytest.mark.parametrize(
    ("name", "near"),
    [("arcfase", "arcface"), ("soft-max", "softmax"), ("lace-learn", "lace-learned")],
)
def test_unknown_names_get_the_nearest(name, near):
    with pytest.raises(ValueError, match=rf"unknown head '{name}': did you mean .*'{near}'.*\?$"):
        tl.heads.create(name, WIDTH, CLASSES)


def test_joint_of_heads_that_do_not_fit():
    first, second = tl.Softmax(6, 5), tl.Softmax(6, 4)
    with pytest.raises(ValueError, match=r"heads must agree.*\(6, 5\).*\(6, 4\)"):
        tl.Joint({"a": first, "b": second})
    with pytest.raises(ValueError, match="at least one head"):
        tl.Joint({})
    with pytest.raises(TypeError, match=r"heads\['a'\] must be a torchlace head, got Linear"):
        tl.Joint({"a": torch.nn.Linear(6, 5)})
    with pytest.raises(ValueError, match=r"weights must name the heads \['a'\], got \['b'\]"):
        tl.Joint({"a": first}, {"b": 1.0})
    with pytest.raises(ValueError, match=r"weights\['a'\] .*got -1"):
        tl.Joint({"a": first}, {"a": -1.0})
    with pytest.raises(ValueError, match="weights must not all be zero"):
        tl.Joint({"a": first, "b": first}, {"a": 0.0, "b": 0.0})
    with pytest.raises(TypeError, match=r"heads must be a dict.*got list"):
        tl.Joint([first])
    with pytest.raises(ValueError, match="'keys' can't be the name of a head"):
        tl.Joint({"keys": first})


def test_checks_of_values_are_switched_off_and_on():
    head = tl.Softmax(WIDTH, CLASSES, dtype=X.dtype)
    with tl.checks(False):
        assert head(bad(torch.nan)).isnan().any()
        with tl.checks(True), pytest.raises(ValueError, match="NaN"):
            head(bad(torch.nan))
        assert head(bad(torch.nan)).isnan().any()
    with pytest.raises(ValueError, match="NaN"):
        head(bad(torch.nan))


@pytest.mark.parametrize("mode", ["off", None, "on"])
def test_checks_of_an_unknown_mode(mode):
    with pytest.raises(ValueError, match="mode must be True, False or"), tl.checks(mode):
        pass


def test_checks_come_back_after_an_error():
    head = tl.Softmax(WIDTH, CLASSES, dtype=X.dtype)
    with pytest.raises(KeyError), tl.checks(False):
        raise KeyError
    with pytest.raises(ValueError, match="targets"):
        head.loss(X, torch.full((8,), 7))


@each_path
def test_refused_batches_teach_nothing(case):
    head = make(case).train()
    before = {name: value.clone() for name, value in head.state_dict().items()}
    for x, y in ((bad(torch.nan), Y), (X, torch.full((8,), 9))):
        with pytest.raises(ValueError):
            head.loss(x, y)
    torch.testing.assert_close(dict(head.state_dict()), before, rtol=0, atol=0)
