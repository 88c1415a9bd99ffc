"""Real sites: server and nodes around the Flower engine, the project that sets them up, what a site does alone."""
