"""The user's own data: files and folders in, a federation or every problem at once out."""
