"""Classify features that are already there: LACE as a scikit-learn estimator.

    python examples/features.py          # ten seconds on a CPU

Handwritten digits of scikit-learn as features, a quarter held out. First beside logistic
regression, then with a hidden layer in front, then as new classes come in, and at the end as plain
torch layers. It prints about

    logistic regression: accuracy 96.89 %, log loss 0.114
    LACE: accuracy 98.00 %, log loss 0.093
    LACE behind a hidden layer: accuracy 97.11 %, log loss 0.077
    LACE in closed form, one digit after the other: accuracy 96.00 %
    chosen: shrinkage 0.667, scale 20.3
    plain layers agree on 100 %:

and these layers.
"""

from __future__ import annotations

import torch
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from torchlace.estimators import LACEClassifier


def main() -> None:
    X, y = load_digits(return_X_y=True)
    X, X_test, y, y_test = train_test_split(X, y, test_size=0.25, random_state=0, stratify=y)
    models = {
        "logistic regression": make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)),
        "LACE": LACEClassifier(random_state=0),
        "LACE behind a hidden layer": LACEClassifier(hidden=128, random_state=0),
    }
    for name, model in models.items():
        model.fit(X, y)
        loss = log_loss(y_test, model.predict_proba(X_test))
        print(f"{name}: accuracy {100 * model.score(X_test, y_test):.2f} %, log loss {loss:.3f}")

    stream = LACEClassifier(random_state=0)
    for digit in range(10):
        stream.partial_fit(X[y == digit], y[y == digit])
    accuracy = 100 * stream.score(X_test, y_test)
    print(f"LACE in closed form, one digit after the other: accuracy {accuracy:.2f} %")

    lace = models["LACE"]
    print(f"chosen: shrinkage {lace.shrinkage_:.3f}, scale {lace.scale_:.1f}")
    layers = torch.nn.Sequential(lace.embedding_, lace.head_.fold())
    labels = lace.classes_[layers(torch.from_numpy(X_test)).argmax(dim=1)]
    print(f"plain layers agree on {100 * (labels == lace.predict(X_test)).mean():.0f} %:")
    print(layers)


if __name__ == "__main__":
    main()
