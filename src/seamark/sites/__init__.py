"""What a machine says of itself, written as a site."""
