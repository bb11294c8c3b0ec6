"""Starting and stopping workers, the processes that run one tier each. `contract` defines what a launcher guarantees."""
