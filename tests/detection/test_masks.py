"""Masked pixels are left out; where that has no meaning, masks are an error."""

import numpy as np
import pytest
from detection.scenes import correlated, scene
from sklearn.linear_model import LogisticRegression

import torchlace as tl
from torchlace.detection import MIACE, ACEDetector, OpenSet, RXDetector, SMFDetector

IMAGE, TARGET = scene()
MASK = np.random.default_rng(0).random(IMAGE.shape[:2]) < 0.1
# One band is enough to leave a pixel out.
MASKED = np.ma.array(IMAGE, copy=True, mask=MASK[..., None] & (np.arange(8) == 3))
MASKED.data[MASK] = 1e30


@pytest.mark.parametrize("covariance", ["sample", "oas"])
@pytest.mark.parametrize(
    "detector",
    [ACEDetector(TARGET), SMFDetector([TARGET, 2 * TARGET[::-1]]), RXDetector()],
    ids=lambda detector: type(detector).__name__,
)
def test_masked_pixels_are_no_background_and_have_no_score(detector, covariance):
    detector.set_params(covariance=covariance, false_alarm=0.01)
    plain = detector.fit(IMAGE[~MASK])
    scores, found = plain.score_samples(IMAGE[~MASK]), plain.predict(IMAGE[~MASK])
    limit, own = plain.threshold_, plain.fit_predict(IMAGE[~MASK])
    detector.fit(MASKED)
    assert detector.n_samples_ == (~MASK).sum()
    np.testing.assert_array_equal(detector.threshold_, limit)
    pairs = [
        (detector.score_samples(MASKED), scores),
        (detector.decision_function(MASKED), scores - limit),
        (detector.predict(MASKED), found),
        (detector.fit_predict(MASKED), own),
    ]
    for masked, expected in pairs:
        assert isinstance(masked, np.ma.MaskedArray)
        assert masked.shape == (*MASK.shape, *scores.shape[1:])
        np.testing.assert_array_equal(masked.mask.any(-1) if scores.ndim > 1 else masked.mask, MASK)
        np.testing.assert_array_equal(masked.data[~MASK], expected)
        assert not masked.data[MASK].any() or np.isnan(masked.data[MASK]).all()
    assert np.isnan(detector.score_samples(MASKED).filled()[MASK]).all()
    assert not detector.predict(MASKED).filled()[MASK].any()
    assert not detector.fit_predict(MASKED).filled()[MASK].any()


def test_lists_of_pixels_and_masks_that_hide_nothing():
    detector = RXDetector().fit(np.ma.array(IMAGE))
    scores = detector.score_samples(np.ma.array(IMAGE, mask=False))
    assert not isinstance(scores, np.ma.MaskedArray)
    rows = MASKED.reshape(-1, 8)
    found = detector.fit(rows).score_samples(rows)
    np.testing.assert_array_equal(found.mask, MASK.ravel())
    np.testing.assert_array_equal(detector.fit(MASKED).score_samples(MASKED).ravel(), found)


def test_where_there_is_nothing_to_leave_out():
    hidden = np.broadcast_to(np.arange(31)[:, None] % 5 == 1, IMAGE.shape)
    with pytest.raises(
        ValueError, match=r"138 pixels without data, which a window would slide over"
    ):
        RXDetector(window=(1, 5)).fit(np.ma.array(IMAGE, mask=hidden))
    everything = np.ma.array(IMAGE, mask=np.broadcast_to(np.arange(8) == 2, IMAGE.shape))
    with pytest.raises(
        ValueError, match="every pixel is without data in some band, and all are in 2"
    ):
        RXDetector().fit(everything)
    with pytest.raises(ValueError, match="every pixel is without data"):
        RXDetector().fit(IMAGE).score_samples(everything)


def test_masks_elsewhere_are_an_error():
    rng = np.random.default_rng(0)
    rows = correlated(rng, 60, 5)
    masked = np.ma.array(rows, mask=rows > rows.max() - 1)
    labels = np.arange(60) % 2
    with pytest.raises(ValueError, match="of target are masked"):
        ACEDetector(np.ma.array(rows[0], mask=[1, 0, 0, 0, 0])).fit(rows)
    with pytest.raises(ValueError, match=r"masked.*leave these samples out"):
        MIACE().fit([masked, rows], [1, 0])
    with pytest.raises(ValueError, match="of bag_labels are masked"):
        MIACE().fit([rows, rows], np.ma.array([1, 0], mask=[0, 1]))
    for model in (LogisticRegression().fit(rows, labels), tl.Softmax(5, 2)):
        with pytest.raises(ValueError, match=r"masked.*leave these samples out"):
            OpenSet(model).fit(masked, labels)
        guarded = OpenSet(model).fit(rows.astype(np.float32), labels)
        with pytest.raises(ValueError, match=r"masked.*leave these samples out"):
            guarded.predict(masked)
