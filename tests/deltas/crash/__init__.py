"""A real server under a load of pushes and pulls, killed without warning, again and again."""
