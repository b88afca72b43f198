"""Kinds of trial, one module each: `measure_trial` measures one. Entry and list of kinds: run_deployment.py."""
