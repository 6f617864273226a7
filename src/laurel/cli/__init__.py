"""The `laurel` command, a module for each of its commands; none imports anything heavy before it runs."""
