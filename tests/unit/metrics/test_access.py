# SPDX-License-Identifier: Apache-2.0
"""Who may read metrics."""

import pytest

from slurm_coloc.core.metrics.access import Access, check, networks


@pytest.mark.parametrize(
    ("allow", "peer", "admitted"),
    [
        ((), "203.0.113.9", True),
        (("10.1.0.0/16",), "10.1.2.3", True),
        (("10.1.0.0/16",), "10.2.2.3", False),
        (("10.1.0.5",), "::ffff:10.1.0.5", True),
        (("10.1.0.5", "fd00::/8"), "fd00::7", True),
        (("10.1.0.5",), "fe80::1%eth0", False),
    ],
)
def test_by_address(allow: tuple[str, ...], peer: str, admitted: bool) -> None:
    assert Access("0.0.0.0", networks(allow)).admits(peer) is admitted


def test_by_token() -> None:
    access = Access("0.0.0.0", token="s3cret")
    assert access.knows("Bearer s3cret")
    for other in ("", "Bearer", "Bearer s3cre", "Basic s3cret", "Bearer s3cret ", "Bearer é"):
        assert not access.knows(other)
    assert Access("127.0.0.1").knows("")


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "10.0.0.1"])
def test_nobody_opens_it_to_all_by_mistake(address: str) -> None:
    with pytest.raises(ValueError, match="open to other hosts"):
        check(address, (), with_token=False)
    check(address, ("10.0.0.0/8",), with_token=False)
    check(address, (), with_token=True)


def test_loopback_needs_nothing() -> None:
    check("127.0.0.1", (), with_token=False)
    check("::1", (), with_token=False)


def test_wrong_words_are_named() -> None:
    with pytest.raises(ValueError, match=r"allow: '10\.0\.0\.1/8'"):
        check("127.0.0.1", ("10.0.0.1/8",), with_token=False)
    with pytest.raises(ValueError, match="address: 'localhost' is no IP address"):
        check("localhost", (), with_token=False)
