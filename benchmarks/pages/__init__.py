"""The pages of docs/ with the paper's tables and the records: their generated parts, made from result files alone."""
