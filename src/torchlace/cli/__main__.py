"""``python -m torchlace.cli``."""

from torchlace.cli import app

app()
