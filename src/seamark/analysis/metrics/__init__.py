"""From raw samples to the metrics of one trial. Reads a trial's files and writes none."""
