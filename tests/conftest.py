from hypothesis import settings

settings.register_profile("headrace", deadline=None)  # shared machines pause; a slow example is no failure
settings.load_profile("headrace")
