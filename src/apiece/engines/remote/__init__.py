"""Server and clients that share nothing but bytes."""
