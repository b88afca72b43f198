"""Models of servers with parameters from measured trials: fit, contradiction, prediction and score. Reads no file."""
