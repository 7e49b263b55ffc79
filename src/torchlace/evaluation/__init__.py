"""How good a trained model is."""

from torchlace.evaluation.scores import class_accuracies, classification_scores

__all__ = ["class_accuracies", "classification_scores"]
