"""The book: the site that `make site` builds from docs/, and the pages of docs/ that come from real runs."""
