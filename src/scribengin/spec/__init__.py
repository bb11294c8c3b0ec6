"""A flow as a person writes it: YAML or Python to frozen values, with every Problem found on the way."""
