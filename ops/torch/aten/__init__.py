"""ATen calls as our operators: a table per family, from the name of the call to a function (site, *arguments)."""
