"""The lowest layer: errors, problems, units, types, options, storage, crash points. Imports no other package of Scribengin."""
