def secrets_of(volume): return []
def review(*a): pass
