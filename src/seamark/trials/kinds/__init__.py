"""Kinds of trial, one module each: `measure_trial` measures one. All of them: table.py."""
