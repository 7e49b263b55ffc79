"""How good a trained model is: figures of merit, and a finished run examined by them."""

from torchlace.evaluation.clusters import (
    agreement,
    cluster_scores,
    davies_bouldin,
    effective_rank,
    fisher_score,
    kmeans,
    silhouette_samples,
    silhouette_score,
)
from torchlace.evaluation.geometry import angle_scores, signature_angles, whitening_scores
from torchlace.evaluation.inspection import Inspection, inspect
from torchlace.evaluation.measures import Measure, measures, register
from torchlace.evaluation.pictures import Picture, check_method, layout, picture
from torchlace.evaluation.scores import (
    brier_score,
    calibration_scores,
    class_accuracies,
    classification_scores,
    confusion_matrix,
    expected_calibration_error,
    reliability_bins,
)
from torchlace.evaluation.unknown import guard, unknown_scores

__all__ = [
    "Inspection",
    "Measure",
    "Picture",
    "agreement",
    "angle_scores",
    "brier_score",
    "calibration_scores",
    "check_method",
    "class_accuracies",
    "classification_scores",
    "cluster_scores",
    "confusion_matrix",
    "davies_bouldin",
    "effective_rank",
    "expected_calibration_error",
    "fisher_score",
    "guard",
    "inspect",
    "kmeans",
    "layout",
    "measures",
    "picture",
    "register",
    "reliability_bins",
    "signature_angles",
    "silhouette_samples",
    "silhouette_score",
    "unknown_scores",
    "whitening_scores",
]
