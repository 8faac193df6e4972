"""JSON numbers: tokens are read, and numbers are printed as ECMAScript does.

Promise: a number is never changed silently. A token with a fraction or an exponent is an IEEE 754 double, and is
refused if it overflows. A token of digits alone is an exact integer; the caller's `Integers` policy says how an integer
is printed that a double cannot hold. Doubles are printed as ECMAScript Number::toString, as RFC 8785 requires.
"""

from __future__ import annotations

import math
from enum import Enum

from semel.kernel.json.text import JsonError, JsonKind, shown

MAX_DIGITS = 4300

# Every integer up to this one is exact as a double, and Number::toString prints all its digits.
_LARGEST_SAFE = 2**53


class Integers(Enum):
    """The policy for an integer that a double cannot hold with all its digits."""

    REFUSE = "refuse"
    EXACT = "exact"
    ROUND = "round"


def read_integer(token: str) -> int:
    """The exact integer of a token; more than MAX_DIGITS digits are refused."""
    if len(token) <= MAX_DIGITS or len(token.lstrip("-")) == MAX_DIGITS:
        try:
            return int(token)
        except ValueError:  # the interpreter was started with a lower limit on digits
            pass
    raise _too_many_digits()


def read_double(token: str) -> float:
    """The double nearest to a token; underflow gives zero, overflow is refused."""
    value = float(token)
    if math.isinf(value):
        raise _overflow(token)
    return value


def print_integer(value: int, integers: Integers) -> str:
    """The canonical digits of an integer under the caller's policy."""
    if -_LARGEST_SAFE <= value <= _LARGEST_SAFE:
        return str(value)
    digits = _exact_digits(value)
    if integers is Integers.EXACT:
        return digits
    rounded = _rounded_digits(value, digits)
    if integers is Integers.REFUSE and rounded != digits:
        raise JsonError(
            JsonKind.INTEGER,
            f"The integer {shown(digits)} does not fit into a double exactly; send it as a string.",
        )
    return rounded


def print_double(value: float) -> str:
    """ECMAScript Number::toString; NaN and the infinities are refused.

    Python's repr has the same digits (the shortest that read back as this double, and of those the nearest) but another
    notation: it uses exponents from 1e16 and below 1e-4, ECMAScript from 1e21 and below 1e-6.
    """
    if value == 0:
        return "0"  # also for -0.0
    if not math.isfinite(value):
        raise JsonError(JsonKind.NOT_A_NUMBER, "NaN and Infinity have no JSON form; send null or a string.")
    text = repr(value)
    if "e" not in text:
        return text.removesuffix(".0")
    size = abs(value)
    if size >= 1e21:
        return text
    if size < 1e-6:
        return text.replace("e-0", "e-")  # Python writes at least two digits of an exponent
    return _written_out(*text.split("e"))


def _written_out(mantissa: str, exponent_text: str) -> str:
    exponent = int(exponent_text)
    sign = "-" if mantissa.startswith("-") else ""
    digits = mantissa.lstrip("-").replace(".", "")
    if exponent > 0:  # repr has at most 17 digits, so from 1e16 there is no fraction
        return sign + digits.ljust(exponent + 1, "0")
    return sign + "0." + "0" * (-exponent - 1) + digits


def _exact_digits(value: int) -> str:
    try:
        digits = str(value)
    except ValueError:  # the interpreter's limit on digits
        raise _too_many_digits() from None
    if len(digits.lstrip("-")) > MAX_DIGITS:
        raise _too_many_digits()
    return digits


def _rounded_digits(value: int, digits: str) -> str:
    try:
        return print_double(float(value))
    except OverflowError:
        raise _overflow(digits) from None


def _too_many_digits() -> JsonError:
    return JsonError(JsonKind.DIGITS, f"An integer has more than {MAX_DIGITS} digits; send it as a string.")


def _overflow(token: str) -> JsonError:
    return JsonError(JsonKind.OVERFLOW, f"The number {shown(token)} is too large for a double; send it as a string.")
