"""Forms of structured settings, one file a form."""
