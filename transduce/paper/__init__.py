"""The paper's three tables in small, measured on one machine, and a page that shows them: `transduce paper`."""
