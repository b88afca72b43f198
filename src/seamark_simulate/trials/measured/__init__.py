"""Workflow requests measured: models called on real servers, on a real clock."""
