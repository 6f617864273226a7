"""Roll-outs, statistics, plots and the report."""
