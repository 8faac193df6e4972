"""Names of namespaces, and the store URL of each one."""

from __future__ import annotations

import pytest

from semel.kernel.namespace import DEFAULT, MOST, NamespaceNameError, check_name, names_in, url_within

BAD = ["", "A", "Acme", "1st", "_x", "a-b", "a.b", "a/b", "..", "a b", "a\n", "ä", "a%2f", "x" * 33, 'a";drop', "a\0"]


@pytest.mark.parametrize("name", BAD)
def test_a_name_that_a_path_a_folder_or_a_schema_could_misread_is_refused(name: str) -> None:
    with pytest.raises(NamespaceNameError, match="lower-case letter"):
        check_name(name)


@pytest.mark.parametrize("name", ["a", "acme", "tenant_7", "con", "nul", "x" * 32])
def test_a_plain_name_is_accepted(name: str) -> None:
    assert check_name(name) == name


def test_a_list_has_each_name_once_and_not_the_default_one() -> None:
    assert names_in("") == ()
    assert names_in("red, blue") == ("red", "blue")
    many = [f"n{number}" for number in range(MOST)]
    assert names_in(",".join(many)) == tuple(many)
    for text in ("red,red", "red,", f"red,{DEFAULT}", ",".join([*many, "more"])):
        with pytest.raises(NamespaceNameError):
            names_in(text)


def test_the_default_namespace_is_the_store_itself() -> None:
    assert url_within("postgresql://u@h/db?schema=s", DEFAULT) == "postgresql://u@h/db?schema=s"
    assert url_within("sqlite:data", DEFAULT) == "sqlite:data"


@pytest.mark.parametrize(
    ("url", "within"),
    [
        ("sqlite:data", "sqlite:data/ns_red"),
        ("sqlite:/var/lib/semel/", "sqlite:/var/lib/semel/ns_red"),
        ("sqlite:data?vfs=slow", "sqlite:data/ns_red?vfs=slow"),
        ("memory:", "memory:"),
        ("postgresql://u:p%3F@h/db", "postgresql://u:p%3F@h/db?schema=semel_ns_red"),
        ("postgres://h/db?lanes=2&schema=mine&readers=3", "postgres://h/db?lanes=2&readers=3&schema=mine_ns_red"),
    ],
)
def test_a_namespace_is_a_folder_or_a_schema_of_its_own(url: str, within: str) -> None:
    assert url_within(url, "red") == within
    assert url_within(url, "blue") == within.replace("red", "blue")


def test_no_name_leads_out_of_the_folder() -> None:
    with pytest.raises(NamespaceNameError):
        url_within("sqlite:data", "../other")
