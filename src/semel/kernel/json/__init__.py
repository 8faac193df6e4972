"""Strict JSON: text, numbers, parser, canonical form, and large texts in bounded memory. Pure."""
