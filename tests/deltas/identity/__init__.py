"""The names of deltas, held against the JavaScript library that LakeSync clients make them with."""
