"""Requests that RFC 9112 lets a server take or asks it to refuse, as bytes: framing, smuggling, targets, lines."""

from __future__ import annotations

HOST = b"Host: h\r\n"
CANARY = b"GET /canary HTTP/1.1\r\nHost: h\r\n\r\n"
"""Stands behind every case: it is run as a request where the case is served, and never where it is refused."""


def head(*lines: bytes, method: bytes = b"POST", target: bytes = b"/x", version: bytes = b"HTTP/1.1") -> bytes:
    """A head with a Host and some lines more."""
    return b"%b %b %b\r\n%b" % (method, target, version, HOST) + b"".join(line + b"\r\n" for line in lines) + b"\r\n"


def get(*lines: bytes, target: bytes = b"/x", version: bytes = b"HTTP/1.1", method: bytes = b"GET") -> bytes:
    """A head without a body."""
    return head(*lines, method=method, target=target, version=version)


def chunked(body: bytes, coding: bytes = b"chunked") -> bytes:
    """A request with a body as given, in chunks."""
    return head(b"Transfer-Encoding: " + coding) + body


LENGTHS = {
    "length and chunks": head(b"Content-Length: 6", b"Transfer-Encoding: chunked") + b"0\r\n\r\nG",
    "chunks and length": head(b"Transfer-Encoding: chunked", b"Content-Length: 6") + b"0\r\n\r\nG",
    "length zero and chunks": head(b"Content-Length: 0", b"Transfer-Encoding: chunked") + b"0\r\n\r\n",
    "length and a coding that is none": head(b"Content-Length: 3", b"Transfer-Encoding: identity") + b"abc",
    "the same length twice": head(b"Content-Length: 3", b"Content-Length: 3") + b"abc",
    "two lengths": head(b"Content-Length: 3", b"Content-Length: 30") + b"abc",
    "two lengths, the larger first": head(b"Content-Length: 30", b"Content-Length: 3") + b"abc",
    "a list of equal lengths": head(b"Content-Length: 3, 3") + b"abc",
    "a list of lengths": head(b"Content-Length: 3, 4") + b"abc",
    "a length with a plus": head(b"Content-Length: +3") + b"abc",
    "a length below zero": head(b"Content-Length: -3") + b"abc",
    "a length in hex": head(b"Content-Length: 0x3") + b"abc",
    "a length of letters": head(b"Content-Length: three") + b"abc",
    "a length with a fraction": head(b"Content-Length: 3.0") + b"abc",
    "a length with an underscore": head(b"Content-Length: 1_0") + b"abc",
    "a length of two words": head(b"Content-Length: 3 3") + b"abc",
    "a length with a NUL": head(b"Content-Length: 3\x00") + b"abc",
    "a length with a vertical tab": head(b"Content-Length: \x0b3") + b"abc",
    "no length": head(b"Content-Length:") + b"abc",
    "an empty length": head(b"Content-Length:  ") + b"abc",
    "a length beyond 64 bits": head(b"Content-Length: 18446744073709551616") + b"abc",
    "a length of 100 digits": head(b"Content-Length: " + b"9" * 100) + b"abc",
    "a space before the colon of a length": head(b"Content-Length : 3") + b"abc",
    "a tab before the colon of a length": head(b"Content-Length\t: 3") + b"abc",
    "a folded length": head(b"Content-Length:", b" 3") + b"abc",
}

CODINGS = {
    "chunked twice in a line": chunked(b"0\r\n\r\n", b"chunked, chunked"),
    "chunked twice": head(b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked") + b"0\r\n\r\n",
    "chunked, then identity": head(b"Transfer-Encoding: chunked", b"Transfer-Encoding: identity") + b"0\r\n\r\n",
    "chunked before another": chunked(b"0\r\n\r\n", b"chunked, identity"),
    "an x before chunked": head(b"Transfer-Encoding: chunked", b"Transfer-Encoding: x") + b"0\r\n\r\n",
    "a comma behind chunked": chunked(b"0\r\n\r\n", b"chunked,"),
    "no coding": chunked(b"0\r\n\r\n", b""),
    "a vertical tab before chunked": chunked(b"0\r\n\r\n", b"\x0bchunked"),
    "a NUL behind chunked": chunked(b"0\r\n\r\n", b"chunked\x00"),
    "a space before the colon of a coding": head(b"Transfer-Encoding : chunked") + b"0\r\n\r\n",
    "a folded coding": head(b"Transfer-Encoding:", b" chunked") + b"0\r\n\r\n",
    "a coding behind a bare CR": head(b"X: y\rTransfer-Encoding: chunked") + b"0\r\n\r\n",
    "a coding behind a bare LF": head(b"X: y\nTransfer-Encoding: chunked") + b"0\r\n\r\n",
    "chunks in HTTP/1.0": head(b"Transfer-Encoding: chunked", version=b"HTTP/1.0") + b"0\r\n\r\n",
    "length and chunks in HTTP/1.0": head(b"Content-Length: 5", b"Transfer-Encoding: chunked", version=b"HTTP/1.0")
    + b"0\r\n\r\n",
}

FOREIGN_CODINGS = {
    "gzip before chunked": chunked(b"0\r\n\r\n", b"gzip, chunked"),
    "identity before chunked": chunked(b"0\r\n\r\n", b"identity, chunked"),
    "a comma before chunked": chunked(b"0\r\n\r\n", b",chunked"),
    "gzip alone": chunked(b"abc", b"gzip"),
    "identity alone": chunked(b"abc", b"identity"),
    "xchunked": chunked(b"0\r\n\r\n", b"xchunked"),
    "chunked in quotes": chunked(b"0\r\n\r\n", b'"chunked"'),
    "chunked with a parameter": chunked(b"0\r\n\r\n", b"chunked;a=b"),
}
"""Transfer codings that are not understood here."""

CHUNKS = {
    "a size with a space behind": chunked(b"5 \r\nhello\r\n0\r\n\r\n"),
    "a size with a space before": chunked(b" 5\r\nhello\r\n0\r\n\r\n"),
    "a size with 0x": chunked(b"0x5\r\nhello\r\n0\r\n\r\n"),
    "a size with a plus": chunked(b"+5\r\nhello\r\n0\r\n\r\n"),
    "a size below zero": chunked(b"-5\r\nhello\r\n0\r\n\r\n"),
    "a size with an underscore": chunked(b"5_0\r\nhello\r\n0\r\n\r\n"),
    "a size that is no number": chunked(b"g\r\n\r\n0\r\n\r\n"),
    "no size": chunked(b"\r\nhello\r\n0\r\n\r\n"),
    "an extension without a size": chunked(b";x\r\nhello\r\n0\r\n\r\n"),
    "a size beyond 64 bits": chunked(b"10000000000000005\r\nhello\r\n0\r\n\r\n"),
    "a size of 17 digits": chunked(b"f" * 17 + b"\r\nhello\r\n0\r\n\r\n"),
    "a size that ends in LF": chunked(b"5\nhello\r\n0\r\n\r\n"),
    "a size that ends in two CR": chunked(b"5\r\rhello\r\n0\r\n\r\n"),
    "an extension that ends in LF": chunked(b"5;a\nhello\r\n0\r\n\r\n"),
    "an extension with a CR in it": chunked(b"5;a\rb\r\nhello\r\n0\r\n\r\n"),
    "an extension with a NUL": chunked(b"5;\x00\r\nhello\r\n0\r\n\r\n"),
    "an extension with a quoted line": chunked(b'5;a="\r\n"\r\nhello\r\n0\r\n\r\n'),
    "content longer than its size": chunked(b"5\r\nhello!\r\n0\r\n\r\n"),
    "content shorter than its size": chunked(b"5\r\nhell\r\n0\r\n\r\n"),
    "content that ends in LF": chunked(b"5\r\nhello\n0\r\n\r\n"),
    "content without an end": chunked(b"5\r\nhello0\r\n\r\n"),
    "an end of one LF": chunked(b"5\r\nhello\r\n0\r\n\n"),
    "a trailer without a colon": chunked(b"0\r\nX y\r\n\r\n"),
    "a trailer with a length": chunked(b"0\r\nContent-Length: 5\r\n\r\n"),
    "a trailer with a coding": chunked(b"0\r\nTransfer-Encoding: chunked\r\n\r\n"),
    "a trailer with a space before the colon": chunked(b"0\r\nX : y\r\n\r\n"),
    "a folded trailer": chunked(b"0\r\nX: y\r\n z\r\n\r\n"),
}

FIELDS = {
    "a folded header": get(b"X: a", b" b"),
    "a header folded with a tab": get(b"X: a", b"\tb"),
    "a first header that is folded": b"GET /x HTTP/1.1\r\n Host: h\r\n\r\n",
    "a space before a colon": get(b"X : a"),
    "a tab before a colon": get(b"X\t: a"),
    "no colon": get(b"X"),
    "no name": get(b": a"),
    "a NUL in a name": get(b"X\x00: a"),
    "a NUL in a value": get(b"X: a\x00b"),
    "a control character in a value": get(b"X: a\x01b"),
    "DEL in a value": get(b"X: a\x7fb"),
    "a bracket in a name": get(b"X(: a"),
    "a high byte in a name": get(b"X\xe9: a"),
    "a quote in a name": get(b'"X": a'),
    "a bare CR in a value": get(b"X: a\rb"),
    "a bare LF behind a value": get(b"X: a\nY: b"),
    "a bare LF as the end of a head": b"GET /x HTTP/1.1\r\nHost: h\r\n\n",
    "only bare LFs": b"GET /x HTTP/1.1\nHost: h\n\n",
    "CR CR LF": b"GET /x HTTP/1.1\r\nHost: h\r\n\r\r\n",
    "no Host": b"GET /x HTTP/1.1\r\n\r\n",
    "two Hosts": get(b"Host: other"),
    "the same Host twice": get(b"Host: h"),
    "two hosts in one Host": b"GET /x HTTP/1.1\r\nHost: h, other\r\n\r\n",
    "a Host with a path": b"GET /x HTTP/1.1\r\nHost: h/x\r\n\r\n",
    "a Host with a user": b"GET /x HTTP/1.1\r\nHost: a@h\r\n\r\n",
    "an upgrade with a body": head(b"Connection: upgrade", b"Upgrade: h2c", b"Content-Length: 3") + b"abc",
    "an upgrade with chunks": head(b"Connection: upgrade", b"Upgrade: x", b"Transfer-Encoding: chunked") + b"0\r\n\r\n",
}

LINES = {
    "HTTP/0.9": b"GET /x\r\n\r\n",
    "HTTP/0.9 by name": get(version=b"HTTP/0.9"),
    "HTTP/1.2": get(version=b"HTTP/1.2"),
    "HTTP/2.0": get(version=b"HTTP/2.0"),
    "HTTP/3": get(version=b"HTTP/3"),
    "the preface of HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "a version with two digits": get(version=b"HTTP/1.10"),
    "a version with a zero before": get(version=b"HTTP/01.1"),
    "a version in small letters": get(version=b"http/1.1"),
    "another protocol": get(version=b"XTTP/1.1"),
    "no version": b"GET /x \r\nHost: h\r\n\r\n",
    "a space behind the version": get(version=b"HTTP/1.1 "),
    "a tab behind the method": b"GET\t/x HTTP/1.1\r\nHost: h\r\n\r\n",
    "a space before the method": b" GET /x HTTP/1.1\r\nHost: h\r\n\r\n",
    "a method in small letters": get(method=b"get"),
    "an unknown method": get(method=b"SMUGGLE"),
    "a method with a NUL": get(method=b"GE\x00T"),
    "a method with a colon": get(method=b"GET:"),
    "no method": b" /x HTTP/1.1\r\nHost: h\r\n\r\n",
    "no target": b"GET HTTP/1.1\r\nHost: h\r\n\r\n",
    "a target of two words": get(target=b"/a b"),
    "a target with a tab": get(target=b"/a\tb"),
    "a target with a NUL": get(target=b"/a\x00b"),
    "a target with a control character": get(target=b"/a\x01b"),
    "a target with a high byte": get(target=b"/a\x80b"),
    "a target with a fragment": get(target=b"/a#b"),
    "a target without a slash": get(target=b"x"),
    "a query alone": get(target=b"?a"),
    "an authority as the target of GET": get(target=b"h:80"),
    "CONNECT": get(target=b"h:80", method=b"CONNECT"),
    "an asterisk as the target of GET": get(target=b"*"),
    "an absolute target of another scheme": get(target=b"ftp://h/x"),
    "an absolute target without a host": get(target=b"http:///x"),
    "an absolute target with a user": get(target=b"http://u@h/x"),
    "an absolute target with a fragment": get(target=b"http://h/x#f"),
    "a TLS hello": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(32) + b"\r\n\r\n",
    "nothing but noise": b"\x00\xff\x00\xff\r\n\r\n",
}

REFUSED: dict[str, tuple[bytes, int]] = {
    name: (sent, status)
    for status, cases in (
        (400, LENGTHS),
        (400, CODINGS),
        (400, FOREIGN_CODINGS),
        (400, CHUNKS),
        (400, FIELDS),
        (400, LINES),
    )
    for name, sent in cases.items()
}

SERVED: dict[str, tuple[bytes, bytes]] = {
    "a plain GET": (get(), b"GET /x? "),
    "a query": (get(target=b"/x?a=b?c"), b"GET /x?a=b?c "),
    "two slashes": (get(target=b"//h/x"), b"GET //h/x? "),
    "a length": (head(b"Content-Length: 3") + b"abc", b"POST /x? abc"),
    "a length with zeros before": (head(b"Content-Length: 003") + b"abc", b"POST /x? abc"),
    "a length with spaces around": (head(b"Content-Length:   3  ") + b"abc", b"POST /x? abc"),
    "a length of zero": (head(b"Content-Length: 0"), b"POST /x? "),
    "neither length nor chunks": (head(), b"POST /x? "),
    "GET with a body that is a request": (
        get(b"Content-Length: %d" % len(CANARY)) + CANARY,
        b"GET /x? " + CANARY,
    ),
    "chunks": (chunked(b"5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n"), b"POST /x? hello world"),
    "chunks in capitals": (chunked(b"A\r\n0123456789\r\n0\r\n\r\n", b"CHUNKED"), b"POST /x? 0123456789"),
    "a chunk that is a request": (
        chunked(b"%x\r\n%b\r\n0\r\n\r\n" % (len(CANARY), CANARY)),
        b"POST /x? " + CANARY,
    ),
    "sizes with zeros before": (chunked(b"0005\r\nhello\r\n000\r\n\r\n"), b"POST /x? hello"),
    "extensions": (chunked(b'5;a=b;c="d"\r\nhello\r\n0;e\r\n\r\n'), b"POST /x? hello"),
    "a trailer": (chunked(b"5\r\nhello\r\n0\r\nX-Sum: 1\r\n\r\n"), b"POST /x? hello"),
    "no chunks but the last": (chunked(b"0\r\n\r\n"), b"POST /x? "),
    "an absolute target": (get(target=b"http://other/x?q"), b"GET /x?q "),
    "an absolute target without a path": (get(target=b"http://other"), b"GET /? "),
    "an absolute target with a port": (get(target=b"HTTPS://[::1]:80/x"), b"GET /x? "),
    "an asterisk for OPTIONS": (get(target=b"*", method=b"OPTIONS"), b"OPTIONS *? "),
    "a high byte in a value": (get(b"X: \xe9"), b"GET /x? "),
    "an empty value": (get(b"X:"), b"GET /x? "),
    "an empty Host": (b"GET /x HTTP/1.1\r\nHost:\r\n\r\n", b"GET /x? "),
    "an empty line before": (b"\r\n" + get(), b"GET /x? "),
    "an unknown expectation": (get(b"Expect: miracles"), b"GET /x? "),
}
"""What is served, with what `Echo` answers; the canary behind it is served too."""

LAST: dict[str, bytes] = {
    "Connection: close": get(b"Connection: close"),
    "Connection: close with a body": head(b"Connection: close", b"Content-Length: 3") + b"abc",
    "HTTP/1.0": get(version=b"HTTP/1.0"),
    "HTTP/1.0 that asks to be kept": get(b"Connection: keep-alive", version=b"HTTP/1.0"),
    "an upgrade that is not known": get(b"Connection: upgrade", b"Upgrade: h2c", b"HTTP2-Settings: AAMAAABk"),
    "a WebSocket where none is": get(b"Connection: Upgrade", b"Upgrade: websocket"),
}
"""What is served as the last request of its connection; nothing behind it is run."""

SWALLOWED: dict[str, bytes] = {
    "the largest length": head(b"Content-Length: 18446744073709551615") + b"abc",
    "the largest chunk": chunked(b"ffffffffffffffff\r\nabc"),
}
"""What has not ended: the canary is part of it."""
