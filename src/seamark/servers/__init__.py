"""Servers of services that have none of their own. Each runs in its service's environment; nothing imports it."""
