package ownfiles

// noWait is empty: no file of a folder is a pipe.
const noWait = 0
