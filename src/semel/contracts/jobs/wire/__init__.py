"""Wire format of jobs: JSON over HTTP to values, and back."""
