from hypothesis import HealthCheck, settings

# No test measures time: on a busy machine a deadline would fail what is right.
settings.register_profile(
    "patient", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("patient")
