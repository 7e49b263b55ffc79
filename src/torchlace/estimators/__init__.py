"""The scikit-learn faces of the heads: classifiers of features that are already there."""

try:
    import sklearn  # noqa: F401
except ImportError as error:
    raise ImportError(
        "torchlace.estimators needs scikit-learn: pip install 'torchlace[estimators]'"
    ) from error

from torchlace.estimators.head import HeadClassifier
from torchlace.estimators.lace import LACEClassifier

__all__ = ["HeadClassifier", "LACEClassifier"]
