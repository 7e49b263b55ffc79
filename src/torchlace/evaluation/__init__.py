"""How good a trained model is: figures of merit of logits, features and labels."""

from torchlace.evaluation.angles import angle_scores, signature_angles
from torchlace.evaluation.calibration import (
    brier_score,
    calibration_scores,
    expected_calibration_error,
    reliability_bins,
)
from torchlace.evaluation.clusters import (
    agreement,
    cluster_scores,
    davies_bouldin,
    effective_rank,
    fisher_score,
    kmeans,
)
from torchlace.evaluation.embedding import embed
from torchlace.evaluation.scores import class_accuracies, classification_scores, confusion_matrix
from torchlace.evaluation.silhouette import silhouette_samples, silhouette_score
from torchlace.evaluation.whitening import whitening_scores

__all__ = [
    "agreement",
    "angle_scores",
    "brier_score",
    "calibration_scores",
    "class_accuracies",
    "classification_scores",
    "cluster_scores",
    "confusion_matrix",
    "davies_bouldin",
    "effective_rank",
    "embed",
    "expected_calibration_error",
    "fisher_score",
    "kmeans",
    "reliability_bins",
    "signature_angles",
    "silhouette_samples",
    "silhouette_score",
    "whitening_scores",
]
