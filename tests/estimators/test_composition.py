"""Inside scikit-learn's machinery: pipelines, searches, copies and files."""

import pickle
import subprocess
import sys

import joblib
import numpy as np
import pytest
from estimators.data import blobs, digits
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.decomposition import PCA
from sklearn.ensemble import BaggingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline

from torchlace.estimators import HeadClassifier, LACEClassifier

X, Y = blobs(spread=0.5)


def test_pipelines_route_weights_and_transform():
    X, T, y, t = digits(4)
    pipe = make_pipeline(PCA(20, random_state=0), LACEClassifier(random_state=0))
    pipe.fit(X, y, laceclassifier__sample_weight=np.ones(len(y)))
    assert pipe.score(T, t) > 0.95
    whitened = make_pipeline(LACEClassifier(random_state=0), LogisticRegression(max_iter=500))
    assert whitened.fit(X, y).score(T, t) > 0.95


def test_grid_search_over_its_settings():
    grid = {"shrinkage": ["auto", 0.1], "scale": [5.0, 10.0]}
    found = GridSearchCV(LACEClassifier(random_state=0), grid, cv=3, n_jobs=2).fit(X, Y)
    assert found.best_score_ > 0.9
    assert found.best_estimator_.scale_ in (5.0, 10.0)


def test_cross_validation():
    scores = cross_val_score(LACEClassifier(random_state=0), X, Y, cv=3, scoring="neg_log_loss")
    assert (scores > -0.3).all()


@pytest.mark.filterwarnings("ignore:the loss was still falling")
@pytest.mark.parametrize(
    "around",
    [
        lambda model: CalibratedClassifierCV(model, cv=3),
        lambda model: BaggingClassifier(model, 3, random_state=0),
        lambda model: OneVsRestClassifier(model),
    ],
)
def test_meta_estimators(around):
    assert around(LACEClassifier(random_state=0)).fit(X, Y).score(X, Y) > 0.9


@pytest.mark.filterwarnings("ignore:the loss was still falling")
@pytest.mark.parametrize(
    "model", [LACEClassifier(random_state=0), HeadClassifier("lace", hidden=4, max_iter=5)], ids=str
)
def test_copies_and_files(model, tmp_path):
    model = clone(model).fit(X, Y)
    expected = model.predict_proba(X)
    joblib.dump(model, tmp_path / "model.joblib")
    for copy in (pickle.loads(pickle.dumps(model)), joblib.load(tmp_path / "model.joblib")):
        np.testing.assert_array_equal(copy.predict_proba(X), expected)
        copy.partial_fit(X, Y)
    np.testing.assert_array_equal(model.predict_proba(X), expected)
    assert not hasattr(clone(model), "head_")


def test_names_of_what_comes_out():
    model = LACEClassifier(random_state=0).fit(X, Y)
    assert model.get_feature_names_out().tolist() == [f"laceclassifier{i}" for i in range(5)]
    narrow = HeadClassifier(hidden=(6, 2), learning_rate=0.1, random_state=0).fit(X, Y)
    assert len(narrow.get_feature_names_out()) == 2 == narrow.transform(X).shape[1]


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_frames(library):
    frames = pytest.importorskip(library)
    frame = frames.DataFrame({f"band {i}": X[:, i] for i in range(5)})
    model = LACEClassifier(random_state=0).set_output(transform=library).fit(frame, Y)
    assert model.feature_names_in_.tolist() == list(frame.columns)
    assert list(model.transform(frame).columns) == list(model.get_feature_names_out())


def test_without_scikit_learn_the_error_says_what_to_install():
    code = "import sys; sys.modules['sklearn'] = None\nimport torchlace.estimators"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "pip install 'torchlace[estimators]'" in found.stderr
