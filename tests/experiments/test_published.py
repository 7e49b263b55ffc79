"""Numbers of the paper, typed from its tables a second time and independently of the files."""

import pytest

from torchlace.experiments import experiment_names, load_experiment

ROWS = ["softmax", "arcface", "cosface", "sphereface", "amc", "center", "lace-published"]
TABLE1 = """
88.69 .21 93.96 .08 94.68 .15 76.38  .76 66.86 .76
88.75 .27 93.71 .55 94.93 .32 75.78 1.10 66.94 .80
88.84 .23 94.28 .04 95.28 .13 77.04  .40 68.84 .08
88.80 .51 94.17 .16 94.64 .47 75.74  .37 65.12 .78
88.40 .51 94.09 .30 94.98 .23 77.20  .28 67.68 .22
89.02 .39 94.29 .09 94.75 .50 77.77  .10 70.03 .90
90.26 .19 94.27 .13 95.69 .20 63.32 1.00 33.12 .56
"""
TABLE2 = """
.58 .01 1.07 .03 3055 251
.64 .01  .98 .00 3768 259
.71 .01  .98 .05 3085  30
.65 .01  .92 .01 5070 384
.71 .01  .89 .03 4703 122
.71 .01  .98 .05 3085  30
.83 .00  .68 .00 5640 174
"""
TABLE3 = """
89.86 .45 91.29  .83 89.96 .17 90.82 .27
89.88 .40 90.51  .29 89.66 .36 90.86 .31
90.16 .23 90.86  .36 89.76 .25 91.05 .40
89.58 .28 90.57  .53 90.55 .35 90.67 .55
89.21 .44 90.71  .50 89.37 .36 90.95 .38
89.77 .37 89.75 1.03 90.18 .47 91.00 .29
87.76 .14 87.06 1.46 85.51 .43 84.49 .37
"""
INCREMENTAL = """
pass   63.5 55.7  61.8 49.0  58.1 48.5
ssre   65.9 56.3  65.0 55.0  61.7 50.5
praka  70.0 61.6  68.9 60.4  65.9 56.2
seed   71.1 66.3  69.9 65.0  68.2 61.4
fecam  70.9 62.1  70.8 62.1  69.4 58.5
clover 72.7 68.0  72.3 67.5  71.0 64.9
"""


@pytest.mark.parametrize(
    ("name", "text"), [("table1", TABLE1), ("table2", TABLE2), ("table3", TABLE3)]
)
def test_every_number_is_the_papers(name, text):
    experiment = load_experiment(name)
    rows = {row.name: row for row in experiment.rows}
    for method, numbers in zip(ROWS, text.split("\n")[1:-1], strict=True):
        values = list(map(float, numbers.split()))
        pairs = list(zip(values[::2], values[1::2], strict=True))
        columns = [column.name for column in experiment.columns][: len(pairs)]
        published = rows[method].published
        assert [(published[c].mean, published[c].deviation) for c in columns] == pairs


def test_classes_that_arrive_later():
    rows = {row.name: row for row in load_experiment("incremental").rows}
    columns = [column.name for column in load_experiment("incremental").columns]
    for name, *numbers in map(str.split, INCREMENTAL.strip().splitlines()):
        published = rows[name].published
        assert [published[column].mean for column in columns] == list(map(float, numbers))


def test_what_stands_apart():
    whitened = next(r for r in load_experiment("table2").rows if r.name.endswith("hed-whitened"))
    assert [(p.mean, p.deviation) for p in whitened.published.values()] == [
        *((0.77, 0.0), (0.69, 0.0), (5737, 195)),
        *((0.98, None), (0.98, None)),
    ]
    ablation = {row.name: row for row in load_experiment("table4").rows}
    parts = {"none": (85.49, 3.21), "covariance": (87.93, 0.14), "mean": (87.26, 1.54)}
    for part, expected in {**parts, "both": (90.26, 0.19)}.items():
        stated = ablation[f"lace-published-{part}"].published["cifar10"]
        assert (stated.mean, stated.deviation) == expected


def test_nothing_is_published_of_what_the_paper_does_not_have():
    for name in experiment_names():
        experiment = load_experiment(name)
        for row in experiment.rows:
            head = {**experiment.settings, **row.settings}["head"]
            if head in ("lace", "lace-learned", "normface"):
                assert not row.published
    for row in load_experiment("table3").rows:
        assert "regnet_y_400mf" not in row.published
