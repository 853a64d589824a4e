"""Many files: each is read and reduced by one worker; only what is left of it comes back."""
