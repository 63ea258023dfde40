"""Servers shared by the tests of a file: one without keys, one with a key."""

from collections.abc import Iterator

import pytest

from echo_service import KEY, echo_service, running
from heedful.serving.auth import Keys, hash_key


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with running(echo_service()) as (url, _):
        yield url


@pytest.fixture(scope="module")
def locked() -> Iterator[str]:
    with running(echo_service(keys=Keys([hash_key(KEY)]))) as (url, _):
        yield url
