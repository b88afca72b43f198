"""Statistics without a domain word: quantiles, histograms, steady state, rank tests, intervals."""
