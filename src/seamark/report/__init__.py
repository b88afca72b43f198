"""Tables, figures and pages made from results. Reads files; measures nothing."""
