"""One file an operation: a reference, fast paths and the choice between them; and keyed random draws."""
