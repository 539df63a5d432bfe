"""Hubs on one PostgreSQL; `python -m bench.hubs` has options, see __main__.py."""


def hubs() -> None:
    from bench.hubs.__main__ import main

    main([])


PARTS = {"hubs": hubs}
