"""Public: the methods' tools behind verl's own tool interface (`tools.stock`), as a tool YAML names them."""
