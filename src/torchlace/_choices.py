"""Settings with a few values, where the command line finds them without importing torch."""

CHOICES = {
    "device": ("auto", "cpu", "cuda", "mps"),
    "protocol": ("native", "paper"),
    "stem": ("auto", "small", "standard"),
    "optimizer": ("adam", "adamw", "sgd"),
    "schedule": ("constant", "cosine", "one-cycle"),
    "class_weights": ("none", "balanced"),
}
