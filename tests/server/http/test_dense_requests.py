"""Many chunks, or many requests, in one read of the socket: all are served, in order, with others' turns between."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import httpx
import pytest

from tests.harness.server import RunningServer

TEXT = {"Content-Type": "text/plain"}
COUNT = 3_000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with RunningServer(tmp_path_factory.mktemp("dense") / "data", env={"SEMEL_STORE": "memory:"}) as running:
        yield running


def address(server: RunningServer) -> tuple[str, int]:
    host, port = server.url.removeprefix("http://").split(":")
    return host, int(port)


def all_of(sock: socket.socket) -> bytes:
    pieces = []
    while piece := sock.recv(65_536):
        pieces.append(piece)
    return b"".join(pieces)


def head(method: str, path: str, *lines: str) -> bytes:
    return "\r\n".join((f"{method} {path} HTTP/1.1", "Host: localhost", *lines, "", "")).encode()


def test_a3_a_body_of_tiny_chunks_arrives_whole_and_what_follows_it_is_served(server: RunningServer) -> None:
    url = f"{server.url}/v1/stream/chunks"
    httpx.put(url, headers=TEXT).raise_for_status()
    content = bytes(33 + number % 90 for number in range(100_000))
    with socket.create_connection(address(server), timeout=60) as sock:
        chunks = b"".join(b"1\r\n%c\r\n" % letter for letter in content) + b"0\r\n\r\n"
        lines = ("Content-Type: text/plain", "Transfer-Encoding: chunked")
        last = head("GET", "/livez", "Connection: close")
        sock.sendall(head("POST", "/v1/stream/chunks", *lines) + chunks + last)
        answers = all_of(sock)
    assert answers.count(b"HTTP/1.1 204") == 1
    assert answers.count(b"HTTP/1.1 200") == 1
    assert httpx.get(url).content == content


def test_a3_thousands_of_requests_in_one_write_are_answered_in_order(server: RunningServer) -> None:
    url = f"{server.url}/v1/stream/pipelined"
    httpx.put(url, headers=TEXT).raise_for_status()
    posts = [
        head("POST", "/v1/stream/pipelined", "Content-Type: text/plain", "Content-Length: 5") + b"%04d\n" % number
        for number in range(COUNT)
    ]
    with socket.create_connection(address(server), timeout=120) as sock:
        sock.sendall(b"".join(posts) + head("GET", "/livez", "Connection: close"))
        answers = all_of(sock)
    assert answers.count(b"HTTP/1.1 204") == COUNT
    assert answers.rindex(b"HTTP/1.1 200") > answers.rindex(b"HTTP/1.1 204")
    assert httpx.get(url).content == b"".join(b"%04d\n" % number for number in range(COUNT))


def test_a3_a_large_body_of_known_length_between_small_requests_arrives_whole(server: RunningServer) -> None:
    url = f"{server.url}/v1/stream/large"
    httpx.put(url, headers=TEXT).raise_for_status()
    content = b"0123456789abcdef" * 200_000
    post = head("POST", "/v1/stream/large", "Content-Type: text/plain", f"Content-Length: {len(content)}")
    with socket.create_connection(address(server), timeout=60) as sock:
        sock.sendall(head("GET", "/livez") * 50 + post + content + head("GET", "/livez", "Connection: close"))
        answers = all_of(sock)
    assert answers.count(b"HTTP/1.1 200") == 51
    assert answers.count(b"HTTP/1.1 204") == 1
    assert httpx.get(url).content == content
