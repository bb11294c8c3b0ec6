"""The marker `faults`: `pytest -m "not faults"` leaves these out."""


def pytest_configure(config):
    config.addinivalue_line("markers", "faults: real runs that are killed; about two minutes on two quiet cores")
