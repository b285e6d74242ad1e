"""Small versions of the paper's three tables, measured on one machine, and a page that shows them: `transduce paper`."""
