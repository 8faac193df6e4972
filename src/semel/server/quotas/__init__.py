"""Quotas: what one principal may use of the server, so that it cannot use up what others need."""
