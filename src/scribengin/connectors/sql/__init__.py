"""What sinks of databases with transactions have in common; a connector of one brings its words. No type of a flow file by itself."""
