"""The paper's tasks, one file each, and the small frame they stand on."""
