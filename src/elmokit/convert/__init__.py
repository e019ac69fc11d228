"""Other people's formats, one file each."""
