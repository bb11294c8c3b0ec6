"""Starting and stopping Workers, the processes that run one tier each. `contract` says what a launcher promises."""
