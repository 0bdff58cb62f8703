"""Steps of the documentation's build that write files into docs/generated."""
