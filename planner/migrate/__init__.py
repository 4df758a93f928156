"""The way from the plan in force to another one for the fewest bytes, in steps."""
