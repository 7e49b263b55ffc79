import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from PIL import Image

from torchlace import report

ROWS = [
    {"epoch": n, "train_loss": 2 / n, "val_loss": 1.5 / n, "val_accuracy": accuracy}
    for n, accuracy in enumerate((50.0, 80.0, 95.0, 90.0, 95.0), start=1)
]
BINS = [
    {
        "lower": n / 15,
        "upper": (n + 1) / 15,
        "count": n,
        "confidence": (n + 0.5) / 15,
        "accuracy": n / 15,
    }
    for n in range(15)
]
EMPTY = {"lower": 0.0, "upper": 0.1, "count": 0, "confidence": None, "accuracy": None}
ANGLES = {"mean": 30.0, "std": 1.0, "histogram": [0] * 20 + [3, 9, 4] + [0] * 157}
RNG = np.random.default_rng(0)
LABELS = np.arange(300) % 10
NAMES = [f"class ${n}$ <b>" for n in range(10)]


def sphere(count):
    points = RNG.normal(size=(count, 3))
    return points / np.linalg.norm(points, axis=1, keepdims=True)


def figures():
    return {
        "curves": report.learning_curves({"lace": ROWS, "soft$max$": ROWS[:1]}, {"lace": 3}),
        "several": report.curve_panels({"a": {"lace": [[80.0, 90.0, 85.0], [70.0, 88.0]]}}),
        "confusion": report.confusion_matrix(np.diag(range(1, 11)), NAMES),
        "reliability": report.reliability_diagram([EMPTY, *BINS[1:]], BINS),
        "angles": report.angle_histograms(
            {"lace": {"true": ANGLES, "nearest_wrong": ANGLES | {"histogram": [0] * 180}}}
        ),
        "spectrum": report.whitening_spectrum({"a": [3.0, 1.0, 0.0], "b": [2.0, 1e-9, -1e-20]}),
        "panels": report.embedding_panels(
            {
                "before": (RNG.normal(size=(300, 2)), RNG.normal(size=(10, 2))),
                "after": (RNG.normal(size=(300, 2)), None),
            },
            LABELS,
            NAMES,
        ),
        "spheres": report.embedding_panels({"raw": (sphere(300), sphere(10))}, LABELS, NAMES),
        "bars": report.comparison_bars({"lace": [98.0, 99.0], "softmax": [97.5]}),
    }


@pytest.fixture(scope="module")
def drawn():
    return figures()


@pytest.mark.parametrize("ending", ["png", "svg"])
def test_every_figure_is_written_and_readable(drawn, tmp_path, ending):
    for name, figure in drawn.items():
        path = report.save(figure, tmp_path / "new" / f"{name}.{ending}")
        if ending == "png":
            picture = Image.open(path)
            assert picture.size == tuple(round(300 * side) for side in figure.get_size_inches())
            # Not blank.
            assert len(np.unique(np.asarray(picture.convert("L").resize((90, 90))))) > 5
        else:
            assert path.read_text().rstrip().endswith("</svg>")
    assert sorted(path.suffix for path in (tmp_path / "new").iterdir()) == [f".{ending}"] * 9


def test_the_same_results_give_the_same_file(tmp_path):
    first, second = (
        report.save(report.confusion_matrix([[3, 1], [0, 4]], ["a", "b"]), tmp_path / f"{n}.svg")
        for n in "12"
    )
    assert first.read_bytes() == second.read_bytes()


def test_other_endings_are_an_error(drawn, tmp_path):
    with pytest.raises(ValueError, match=r"\.png or \.svg"):
        report.save(drawn["bars"], tmp_path / "bars.jpg")


def texts(figure):
    """All texts that are drawn; matplotlib also keeps ticks beyond the ends of its axes."""
    found = [text for legend in figure.legends for text in legend.get_texts()]
    for axes in figure.axes:
        legend = axes.get_legend()
        found += legend.get_texts() if legend else []
        found += [*axes.texts, axes._left_title, axes.xaxis.label, axes.yaxis.label]
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            ticks = axis.get_major_ticks()
            found += [tick.label1 for tick in ticks if low <= tick.get_loc() <= high]
    return [text for text in found if text.get_visible() and text.get_text().strip()]


def overlapping(figure):
    """Pairs of texts of a figure that are drawn over each other."""
    renderer = FigureCanvasAgg(figure).get_renderer()
    figure.draw(renderer)
    boxes = [(text.get_text(), text.get_window_extent(renderer)) for text in texts(figure)]
    return [
        (one, other)
        for place, (one, box) in enumerate(boxes)
        for other, against in boxes[place + 1 :]
        if box.x0 < against.x1 - 1
        and against.x0 < box.x1 - 1
        and box.y0 < against.y1 - 1
        and against.y0 < box.y1 - 1
    ]


@pytest.mark.parametrize(
    "name", ["curves", "confusion", "reliability", "angles", "spectrum", "bars"]
)
def test_no_text_lies_over_another(drawn, name):
    assert len(texts(drawn[name])) > 5
    assert overlapping(drawn[name]) == []


@pytest.mark.parametrize(
    ("count", "rows"), [(1, 1), (3, 1), (4, 2), (5, 2), (6, 2), (8, 2), (9, 3)]
)
def test_panels_of_long_titles_do_not_overlap(count, rows):
    panels = {
        f"LACE number {place}, before whitening or not": (RNG.normal(size=(300, 2)), None)
        for place in range(count)
    }
    figure = report.embedding_panels(panels, LABELS, NAMES)
    assert overlapping(figure) == []
    figure.canvas.draw()
    assert len({round(axes.get_position().y0, 3) for axes in figure.axes}) == rows


def test_overlaps_are_found():
    figure = report.comparison_bars({"lace": [98.0, 99.0]})
    figure.axes[0].text(98, 0, "over", clip_on=False)
    figure.axes[0].text(98, 0, "another")
    assert ("over", "another") in overlapping(figure)


@pytest.mark.parametrize("classes", [10, 20, 100])
def test_labels_of_a_confusion_matrix_do_not_overlap(classes):
    names = [f"a longish name {n}" for n in range(classes)]
    figure = report.confusion_matrix(RNG.integers(0, 50, (classes, classes)), names)
    assert overlapping(figure) == []
    labels = [text.get_text() for text in figure.axes[0].get_yticklabels()]
    assert labels == names
    assert len(figure.axes[0].texts) == (
        0 if classes > 20 else np.count_nonzero(figure.axes[0].images[0].get_array())
    )


def test_names_with_dollars_stay_text(drawn):
    for name in ("confusion", "panels", "curves"):
        found = [text for text in drawn[name].findobj(mpl.text.Text) if "$" in text.get_text()]
        assert found
        assert not any(text.get_parse_math() for text in found)


def test_the_users_own_style_changes_nothing():
    before = report.comparison_bars({"lace": [98.0, 99.0]})
    with mpl.rc_context({"font.size": 30, "axes.facecolor": "black", "axes.grid": True}):
        after = report.comparison_bars({"lace": [98.0, 99.0]})
        assert mpl.rcParams["font.size"] == 30
    assert after.axes[0].get_facecolor() == before.axes[0].get_facecolor()
    assert after.axes[0].xaxis.label.get_size() == before.axes[0].xaxis.label.get_size()


def marks(axes):
    return [
        tuple(map(float, line.get_xydata()[0])) for line in axes.lines if line.get_marker() == "o"
    ]


def test_the_chosen_epoch_is_marked():
    loss, accuracy = report.learning_curves({"lace": ROWS}, {"lace": 4}).axes
    assert marks(accuracy) == [(4, 90.0)]
    assert marks(loss) == [(4, 1.5 / 4)]
    # Epochs 3 and 5 are as accurate; the loss of the fifth is lower, as training decides.
    _, accuracy = report.learning_curves({"lace": ROWS}).axes
    assert marks(accuracy) == [(5, 95.0)]


def test_shares_are_of_the_row_and_an_empty_class_is_no_error():
    shown = report.confusion_matrix([[3, 1], [0, 0]], ["a", "b"]).axes[0].images[0].get_array()
    np.testing.assert_allclose(shown, [[0.75, 0.25], [0, 0]])


def test_bars_are_means_and_whiskers_deviations():
    values = [97.0, 98.0, 99.5]
    axes = report.comparison_bars({"lace": values, "softmax": [95.0]}).axes[0]
    bar = axes.patches[0]
    assert bar.get_x() + bar.get_width() == pytest.approx(np.mean(values))
    whisker = axes.collections[0].get_segments()[0]
    assert np.ptp(whisker[:, 0]) / 2 == pytest.approx(np.std(values, ddof=1))
    assert f"starts at {bar.get_x():g}" in axes.get_xlabel()


def test_bars_start_at_zero_unless_all_are_far_from_it():
    axes = report.comparison_bars({"a": [10.0], "b": [90.0]}).axes[0]
    assert axes.get_xlim()[0] == 0
    assert "starts" not in axes.get_xlabel()
    assert report.comparison_bars({"a": [-1.0], "b": [1.0]}).axes[0].get_xlim()[0] == -1
    assert report.comparison_bars({"a": [0.0]}).axes[0].get_xlim()[0] == 0


def test_signatures_are_crosses_outlined_in_red(drawn):
    for name in ("panels", "spheres"):
        crosses = drawn[name].axes[0].collections[-1]
        assert len(crosses.get_offsets()) == 10
        edge = crosses.get_edgecolor()[0]
        assert edge[0] > 0.8
        assert max(edge[1:3]) < 0.2


def test_curves_of_several_seeds_show_the_best_so_far_and_where_it_stopped():
    rows = {"lace": [[80.0, 90.0, 85.0], [70.0, 88.0]], "plain": [[60.0, 70.0], [62.0, 61.0]]}
    figure = report.curve_panels({"digits": rows, "clothes": {"plain": [[50.0]]}})
    digits, clothes = figure.axes
    assert [line.get_ydata().tolist() for line in digits.lines] == [[75.0, 89.0, 89.0], [61, 66]]
    assert digits.collections[0].get_offsets().tolist() == [[3, 90], [2, 88]]
    assert [text.get_text() for text in digits.texts] == [""]
    assert digits.get_ylim()[0] < 66
    assert [line.get_color() for line in clothes.lines] == [digits.lines[1].get_color()]
    assert [text.get_text() for text in figure.legends[0].texts] == ["lace", "plain"]


def test_what_ends_far_below_the_others_is_told_in_words():
    rows = {f"method {end}": [[float(end)]] for end in (90, 91, 92, 93, 94, 33, 35)}
    axes = report.curve_panels({"digits": rows}).axes[0]
    assert axes.texts[0].get_text() == "method 33: 33.0\nmethod 35: 35.0"
    assert 80 < axes.get_ylim()[0] < 90


BAD = {
    "no curve": lambda: report.curve_panels({"digits": {"lace": []}}),
    "no column": lambda: report.curve_panels({"digits": {"lace": [[1.0]]}, "clothes": {}}),
    "no number": lambda: report.curve_panels({"digits": {"lace": [[1.0, np.nan]]}}),
    "no method": lambda: report.curve_panels({"digits": {}}),
    "no epochs": lambda: report.curve_panels({"digits": {"lace": [[]]}}),
    "no run": lambda: report.learning_curves({}),
    "no epoch": lambda: report.learning_curves({"lace": []}),
    "names": lambda: report.confusion_matrix(np.eye(3), ["a", "b"]),
    "no value": lambda: report.comparison_bars({"lace": []}),
    "no panel": lambda: report.embedding_panels({}, [], []),
    "points": lambda: report.embedding_panels({"a": (np.zeros((3, 2)), None)}, [0, 1], ["a", "b"]),
    "flat": lambda: report.embedding_panels({"a": (np.zeros((2, 4)), None)}, [0, 1], ["a", "b"]),
    "label": lambda: report.embedding_panels({"a": (np.zeros((2, 2)), None)}, [0, 2], ["a", "b"]),
    "angles": lambda: report.angle_histograms({}),
    "spectra": lambda: report.whitening_spectrum({}),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_an_error_that_says_what_is_needed(case):
    with pytest.raises(ValueError, match=r"need|must"):
        BAD[case]()
