"""The paper's tasks, one file each, and the framework they share."""
