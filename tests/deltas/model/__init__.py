"""Deltas against a plain model of what they promise, with clients that believe whatever they are sent."""
