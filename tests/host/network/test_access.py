"""One check of the token serves all servers."""

import pytest

from headrace.host.network.access import Access

SECRET = Access(token="secret")


@pytest.mark.parametrize("given", ["Bearer secret", "bearer secret", "BEARER  secret"])
def test_the_token_is_taken_whatever_the_case_of_the_scheme(given):
    assert SECRET.authorized(given)


@pytest.mark.parametrize(
    "given",
    [
        None,
        "",
        "secret",
        "Bearer",
        "Bearer ",
        "Bearer Secret",
        "Bearer secret2",
        "Basic secret",
        "Bearer \udcff",
        "Bearer \xe9",
    ],
)
def test_anything_else_is_refused(given):
    assert not SECRET.authorized(given)


def test_without_a_token_everybody_is_authorized():
    assert Access().authorized(None) and Access(insecure=True).authorized("Bearer x")
