"""Addresses and logins, as people write them."""

from __future__ import annotations

import pytest

from scribengin.core.errors import Exit, Refused
from scribengin.core.secret import Secret
from scribengin.registry.access import DigestLogin, RegistryAddress, SaslLogin, check_root
from scribengin.registry.contract import ANYONE, Grant, May


@pytest.mark.parametrize(
    ("text", "servers", "root"),
    [
        ("zk://a:2182/flows", ("a:2182",), "/flows"),
        ("zk://a,b:2,c/x/y", ("a:2181", "b:2", "c:2181"), "/x/y"),
        ("zk://a, b/x", ("a:2181", "b:2181"), "/x"),
        ("zk://a", ("a:2181",), "/scribengin"),
        ("zk://a/", ("a:2181",), "/scribengin"),
        ("zk://[::1]:2182/x/", ("[::1]:2182",), "/x"),
        ("zk://10.0.0.1/x.y-z_0", ("10.0.0.1:2181",), "/x.y-z_0"),
    ],
)
def test_an_address_names_servers_and_a_root(text: str, servers: tuple[str, ...], root: str) -> None:
    address = RegistryAddress.parse(text)
    assert (address.servers, address.root) == (servers, root)
    assert RegistryAddress.parse(str(address)) == address


NO_ADDRESSES = (
    *("", "a:2181", "http://a/x", "zk://", "zk:///x", "zk://user:password@a/x"),
    *("zk://a:0/x", "zk://a:65536/x", "zk://a:b/x", "zk://a,/x"),
    *("zk://a/x//y", "zk://a/../x", "zk://a/.", "zk://a/x y", "zk://a/x\n"),
)


@pytest.mark.parametrize("text", NO_ADDRESSES)
def test_what_is_no_address_is_refused_with_the_form_that_is(text: str) -> None:
    with pytest.raises(Refused, match="is not an address of a registry") as caught:
        RegistryAddress.parse(text)
    assert "zk://HOST:PORT,HOST:PORT/path" in caught.value.remedy
    assert caught.value.exit is Exit.INPUT


def test_rights_name_a_login_by_the_hash_that_zookeeper_makes() -> None:
    # from ZooKeeper's documentation of its digest provider, and its DigestAuthenticationProvider for super:test
    assert DigestLogin(Secret("super:test", "${secret:env/X}")).who == "digest:super:D/InIHSb7yEEbrWz8b9l71RjZJU="


@pytest.mark.parametrize("secret", ["sesame", ":sesame", "masters:", ""])
def test_a_login_that_is_no_user_and_password_is_refused_without_showing_it(secret: str) -> None:
    reference = "${secret:env/MASTERS}"
    with pytest.raises(Refused) as caught:
        DigestLogin(Secret(secret, reference))
    assert reference in str(caught.value)
    assert "sesame" not in str(caught.value)
    with pytest.raises(Refused):
        SaslLogin(secret=Secret(secret, reference))


def test_a_way_to_log_in_that_is_not_known_is_refused() -> None:
    with pytest.raises(Refused, match='"PLAIN" is not a supported login mechanism'):
        SaslLogin("PLAIN", Secret("a:b", "${secret:env/X}"))
    SaslLogin("GSSAPI")


def test_no_text_of_a_login_shows_its_password() -> None:
    secret = Secret("masters:sesame", "${secret:env/MASTERS}")
    for login in (DigestLogin(secret), SaslLogin(secret=secret)):
        assert "sesame" not in f"{login} {login!r}"
        assert "masters" in str(login)


def test_a_root_that_everybody_may_only_read_is_no_open_one() -> None:
    address = RegistryAddress.parse("zk://a/x")
    check_root(address, [Grant("digest:a:b", May.ALL), Grant(ANYONE, May.READ)], insecure=False)
    with pytest.raises(Refused, match=r"world:anyone \(read, create\)"):
        check_root(address, [Grant(ANYONE, May.READ | May.CREATE)], insecure=False)
