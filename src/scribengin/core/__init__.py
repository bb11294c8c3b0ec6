"""The ground floor: errors, problems, units, types, options, storage, crash points. Imports nothing of ours."""
