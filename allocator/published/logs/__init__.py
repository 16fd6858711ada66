"""Job logs of published clusters that are not one table with a header."""
