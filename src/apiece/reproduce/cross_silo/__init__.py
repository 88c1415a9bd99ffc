"""Few, fixed clients with tables: no paper's experiment, our own."""
